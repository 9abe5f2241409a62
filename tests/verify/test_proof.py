"""A checker that never fails proves nothing: a right port passes, and each fault put into it is caught and placed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fusec.verify.harness import Outcome, Request, Session, prove

from .ports import write_port
from .ports.families import FAMILIES

pytestmark = pytest.mark.engine

Prove = Callable[..., Outcome]


@pytest.fixture
def proof(proofs: Session, tmp_path: Path) -> Prove:
    """Prove the hand-written port for a family, whole or with a fault."""

    def run(family: str, fault: tuple[str, str] | None = None, **options: object) -> Outcome:
        config = FAMILIES[family]
        out = write_port(tmp_path / "out", config["architectures"][0], fault)
        return prove(out, Request(config=config, **options), within=proofs)  # type: ignore[arg-type]

    return run


def failures(outcome: Outcome) -> dict[str, str | None]:
    return {row.name: row.code for row in outcome.rows if not row.passed}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_right_port_passes(family: str, proof: Prove) -> None:
    outcome = proof(family)
    assert outcome.passed, outcome.rows
    assert [row.name for row in outcome.rows] == ["float32", "chunked prefill", "mixed batch"]
    assert outcome.port == "dense_port.modeling.DenseForCausalLM"
    assert all(0 < (row.largest or 0) < 1e-4 for row in outcome.rows)
    assert 1.5 < outcome.logit_std < 2.5


BIAS = 'bias=getattr(config, "attention_bias", default_bias)'
K_AND_V = """(".qkv_proj.", ".k_proj.", "k"),
            (".qkv_proj.", ".v_proj.", "v"),"""
V_AND_K = """(".qkv_proj.", ".k_proj.", "v"),
            (".qkv_proj.", ".v_proj.", "k"),"""
Q_NORM = "            q = self.q_norm(q.unflatten(-1, (self.num_heads, self.head_dim))).flatten(-2)\n"

# family, what is replaced, by what, and the place that the layer-by-layer run must name
FAULTS = {
    "a dropped bias of q, k and v": ("qwen2", BIAS, "bias=False", "layers.0.self_attn.qkv_proj (its output"),
    "a dropped bias of the output projection": (
        "llama",
        'bias=getattr(config, "attention_bias", False)',
        "bias=False",
        "layers.0.self_attn.o_proj (its output",
    ),
    "the other rotary pairing": (
        "llama",
        "is_neox_style=True",
        "is_neox_style=False",
        "layers.0.self_attn.o_proj (its input",
    ),
    "the other rotary base": (
        "llama",
        "rope_parameters=config.rope_parameters",
        "rope_parameters={**config.rope_parameters, 'rope_theta': 10000.0}",
        "layers.0.self_attn.o_proj (its input",
    ),
    "rotary frequencies that are not scaled": (
        "llama",
        "rope_parameters=config.rope_parameters",
        "rope_parameters={'rope_type': 'default', 'rope_theta': config.rope_parameters['rope_theta']}",
        "layers.0.self_attn.o_proj (its input",
    ),
    "a missing window": (
        "mistral",
        'getattr(config, "sliding_window", None) if sliding else None',
        "10**6",
        "layers.0.self_attn.o_proj (its input",
    ),
    "a window on layers that see everything": (
        "qwen2",
        'layer_types[extract_layer_index(prefix)] == "sliding_attention" if layer_types else True',
        "True",
        "layers.0.self_attn.o_proj (its input",
    ),
    "a lost logit scale": (
        "granite",
        'scale=1.0 / getattr(config, "logits_scaling", 1.0)',
        "scale=1.0",
        "on the way from the last hidden state to the logits",
    ),
    "a lost embedding scale": (
        "granite",
        "hidden_states * self.embedding_multiplier",
        "hidden_states",
        "layers.0.",
    ),
    "a lost residual scale": (
        "granite",
        "return self.mlp(hidden_states) * self.residual_multiplier",
        "return self.mlp(hidden_states)",
        "model.layers.0 (its output",
    ),
    "another attention scale": (
        "granite",
        'getattr(config, "attention_multiplier", self.head_dim**-0.5)',
        "self.head_dim**-0.5",
        "layers.0.self_attn.o_proj (its input",
    ),
    "k and v swapped": ("llama", K_AND_V, V_AND_K, "layers.0.self_attn.qkv_proj (its output"),
    "a missing q norm": ("qwen3", Q_NORM, "", "layers.0.self_attn.o_proj (its input"),
    "another epsilon": (
        "llama",
        "self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)",
        "self.input_layernorm = RMSNorm(config.hidden_size, eps=1e-6)",
        "layers.0.input_layernorm (its output",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_caught_and_placed(fault: str, proof: Prove) -> None:
    family, right, wrong, place = FAULTS[fault]
    outcome = proof(family, (right, wrong))
    assert failures(outcome)["float32"] == "FUS701"
    row = outcome.rows[0]
    assert row.largest is not None
    assert row.bar is not None
    assert row.largest > row.bar
    assert row.where.startswith("sequence ")
    assert place in row.detail


def test_what_only_cut_prompts_show(proof: Prove) -> None:
    """Positions counted from the start of each step: right as long as a step holds whole prompts from the first on."""
    outcome = proof("llama", ("self.rotary_emb(positions,", "self.rotary_emb(positions - positions[0],"))
    assert failures(outcome).keys() >= {"chunked prefill", "mixed batch"}


def test_two_ranks(proof: Prove) -> None:
    outcome = proof("qwen3", tensor_parallel=2)
    assert outcome.passed, outcome.rows
    assert outcome.rows[-1].name == "tensor parallel 2"


def test_what_only_two_ranks_show(proof: Prove) -> None:
    fault = ('prefix=f"{prefix}.o_proj",', 'prefix=f"{prefix}.o_proj", reduce_results=False,')
    assert failures(proof("qwen3", fault, tensor_parallel=2)) == {"tensor parallel 2": "FUS701"}


def test_two_pipeline_stages(proof: Prove) -> None:
    outcome = proof("mistral", pipeline_parallel=2)
    assert outcome.passed, outcome.rows
    assert outcome.rows[-1].name == "pipeline parallel 2"


def test_what_only_two_stages_show(proof: Prove) -> None:
    fault = ('"residual": residual})', '"residual": hidden_states})')
    assert failures(proof("mistral", fault, pipeline_parallel=2)) == {"pipeline parallel 2": "FUS701"}


def test_compiled_and_in_bfloat16(proof: Prove) -> None:
    outcome = proof("llama", compiled=True, bfloat16=True)
    assert outcome.passed, outcome.rows
    assert [row.name for row in outcome.rows][3:] == ["compiled", "bfloat16", "bfloat16 modules"]


def test_a_port_that_is_not_compiled(proof: Prove) -> None:
    outcome = proof("llama", ("@support_torch_compile\n", ""), compiled=True)
    assert failures(outcome) == {"compiled": "FUS702"}
    assert "support_torch_compile" in outcome.rows[-1].detail


def test_a_port_that_loses_precision_in_bfloat16(proof: Prove) -> None:
    """An activation rounded to three bits of mantissa where the dtype is not float32: exact in float32."""
    right = "x, _ = self.down_proj(self.act_fn(gate_up))"
    wrong = (
        "x = self.act_fn(gate_up)\n"
        "        if x.dtype == torch.bfloat16:\n"
        "            x = x.to(torch.float8_e4m3fn).to(x.dtype)\n"
        "        x, _ = self.down_proj(x)"
    )
    outcome = proof("llama", (right, wrong), bfloat16=True)
    assert failures(outcome) == {"bfloat16": "FUS701", "bfloat16 modules": "FUS701"}
    assert outcome.rows[-2].measure == "mean KL"
    assert outcome.rows[-1].where == "model.layers.*.mlp"


def test_a_norm_whose_sum_of_squares_is_taken_in_bfloat16(proof: Prove) -> None:
    """Too small to show in the distributions of four layers, plain on the norm's own inputs."""
    right = "class DenseMLP(nn.Module):"
    wrong = (
        "class RMSNorm(RMSNorm):\n"
        "    def forward(self, x, residual=None):\n"
        "        y = x if residual is None else x + residual\n"
        "        variance = (y * y).mean(-1, keepdim=True)\n"
        "        z = self.weight * (y * torch.rsqrt(variance + self.variance_epsilon))\n"
        "        return z if residual is None else (z, y)\n\n\n"
    ) + right
    outcome = proof("llama", (right, wrong), bfloat16=True)
    assert failures(outcome)["bfloat16 modules"] == "FUS701"
    assert "norm" in outcome.rows[-1].where


def test_a_port_that_raises(proof: Prove) -> None:
    fault = ("self.embedding_multiplier = getattr(", 'raise RuntimeError("no such luck")\n        getattr(')
    outcome = proof("llama", fault)
    assert failures(outcome) == {"float32": "FUS702"}
    assert "RuntimeError: no such luck" in outcome.rows[0].detail.splitlines()[0]


def test_a_port_that_takes_its_process_down(proof: Prove) -> None:
    fault = ("            residual = None\n", "            import os; os.abort()\n")
    outcome = proof("llama", fault)
    assert failures(outcome) == {"float32": "FUS702"}
    assert "died" in outcome.rows[0].detail


def test_a_port_that_hangs(proof: Prove) -> None:
    fault = ("            residual = None\n", "            import time; time.sleep(600)\n")
    outcome = proof("llama", fault, timeout=25.0)
    assert failures(outcome) == {"float32": "FUS702"}
    assert "no answer within 25 s" in outcome.rows[0].detail


def test_another_class_that_runs(proofs: Session, tmp_path: Path) -> None:
    """The plugin serves another architecture, so vLLM's own class runs, and computes the right numbers."""
    out = write_port(tmp_path / "out", "NobodyForCausalLM")
    outcome = prove(out, Request(config=FAMILIES["qwen3"]), within=proofs)
    assert failures(outcome) == {"float32": "FUS704"}
    assert "vllm.model_executor.models" in outcome.rows[0].detail
