"""The two outer classes of a port: the decoder, and the architecture with its head.

What they look like is the engine's contract for models (pipeline stages, compilation,
weight loading), not the source's; from the source come names, constructor arguments and
every operation between tokens, layers and logits.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from fusec.diagnostics import Place, refuse
from fusec.graph.values import Instance, Sym, Tensor
from fusec.match.sites import place_of
from fusec.match.text import attribute_of
from fusec.match.unit import Decoder, Head, Stacked, Unit
from fusec.rewrite.classes import statement_lines
from fusec.rewrite.lower import Lowering

_FORWARD = (
    "def forward(self, input_ids: torch.Tensor | None, positions: torch.Tensor, "
    "intermediate_tensors: IntermediateTensors | None = None, inputs_embeds: torch.Tensor | None = None) "
    "-> torch.Tensor | IntermediateTensors:"
)
"""The signature by which the engine calls a model."""


RESERVED = frozenset(
    "config quant_config loader logits_processor start_layer end_layer make_empty_intermediate_tensors "
    "packed_modules_mapping hf_to_vllm_mapper forward compute_logits load_weights embed_input_ids".split()
)
"""Names that the two outer classes of a port give a meaning of their own."""


def check_names(*names: str) -> None:
    """Refuse attributes of the source that are called like parts of the port."""
    taken = sorted(set(names) & RESERVED)
    if taken:
        raise refuse("FUS401", f"The source has an attribute {taken[0]}, a name that the port needs for itself.")


@dataclass(frozen=True)
class Skeleton:
    """Lines of a class body, the engine symbols they use, and the units they stand for."""

    lines: list[str]
    symbols: tuple[str, ...]
    units: tuple[Unit, ...]


def decoder_class(lowering: Lowering, decoder: Decoder, layer_extra: tuple[str, ...]) -> Skeleton:
    """The body of the model class. ``layer_extra`` are the extra parameters of the layer class."""
    ctx, frame = lowering.ctx, decoder.frame
    model = frame.module
    assert model is not None
    check_names(
        decoder.embed_attr, decoder.layers, *([attribute_of(model, decoder.norm.module) or ""] if decoder.norm else [])
    )
    threads = [lowering.matches.threads.get(c.id) for c in decoder.calls]
    threaded = all(threads)
    if any(threads) and not threaded:
        raise refuse("FUS502", "Only some layers leave their last addition to the next one.")
    body = lowering.body(decoder.calls[0])
    embed = model.attrs[decoder.embed_attr]
    before, _ = lowering.select(frame, [decoder.embedded], [decoder.embedding])
    if ctx.base(decoder.embedded) is ctx.base(decoder.embedding):
        before = []
    # what the source computes only where it looks ids up must not touch supplied embeddings
    looked_up = [u for u in before if lowering.stands_under(u, "inputs_embeds")]
    on_ids = _renamed(lowering, looked_up, decoder.embedding, "inputs_embeds")
    pre = _renamed(lowering, [u for u in before if u not in looked_up], decoder.embedding, "hidden_states")
    hidden = "hidden_states"
    loop = decoder.calls[0].call
    name = loop.func.id if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name) else "layer"
    values = [hidden, "residual"] if threaded else [hidden]
    arguments = (["positions"] if body.positions else []) + values
    tensors = ", ".join(f'"{v}"' for v in values)
    pairs = ", ".join(f'"{v}": {v}' for v in values)
    hidden_size = _config_text(model, embed, "embedding_dim")
    embedding = [
        _config_text(model, embed, "num_embeddings"),
        hidden_size,
        "quant_config=quant_config",
        f'prefix=f"{{prefix}}.{decoder.embed_attr}"',
    ]
    lines = [
        'def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:',
        "    super().__init__()",
        "    config = vllm_config.model_config.hf_config",
        "    cache_config = vllm_config.cache_config",
        "    quant_config = vllm_config.quant_config",
        *(["    self.config = config"] if any("self.config" in line for line in (*pre, *on_ids)) else []),
        "",
        "    if get_pp_group().is_first_rank or (config.tie_word_embeddings and get_pp_group().is_last_rank):",
        f"        self.{decoder.embed_attr} = VocabParallelEmbedding({', '.join(embedding)})",
        "    else:",
        f"        self.{decoder.embed_attr} = PPMissingLayer()",
        f"    self.start_layer, self.end_layer, self.{decoder.layers} = make_layers(",
        f"        {_layer_count(decoder)},",
        f"        lambda prefix: {_layer_text(decoder, layer_extra)},",
        f'        prefix=f"{{prefix}}.{decoder.layers}",',
        "    )",
    ]
    symbols = [
        "VllmConfig",
        "get_pp_group",
        "VocabParallelEmbedding",
        "PPMissingLayer",
        "make_layers",
        "IntermediateTensors",
        "make_empty_intermediate_tensors_factory",
        "support_torch_compile",
        "extract_layer_index",
    ]
    units: list[Unit] = list(before)
    after: list[str] = []
    if decoder.norm is not None:
        attr = attribute_of(model, decoder.norm.module)
        unit = next(u for u in lowering.matches.of(frame) if u.outputs[0] is decoder.norm.output)
        units.append(unit)
        lines += [
            "    if get_pp_group().is_last_rank:",
            f"        self.{attr} = {unit.init[0].text}",
            "    else:",
            f"        self.{attr} = PPMissingLayer()",
        ]
        symbols += unit.symbols
        after.append(
            f"{hidden}, _ = self.{attr}({hidden}, residual)" if threaded else f"{hidden} = self.{attr}({hidden})"
        )
    elif threaded:
        after.append(f"{hidden} = {hidden} + residual")
    lines += [
        "    self.make_empty_intermediate_tensors = make_empty_intermediate_tensors_factory(",
        f"        [{tensors}], {hidden_size}",
        "    )",
        "",
        "def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:",
        *(
            [f"    inputs_embeds = self.{decoder.embed_attr}(input_ids)", *("    " + line for line in on_ids)]
            if on_ids
            else []
        ),
        "    return inputs_embeds" if on_ids else f"    return self.{decoder.embed_attr}(input_ids)",
        "",
        _FORWARD.replace("IntermediateTensors | None = None,", "IntermediateTensors | None,"),
        "    if get_pp_group().is_first_rank:",
        f"        {hidden} = inputs_embeds if inputs_embeds is not None else self.embed_input_ids(input_ids)",
        *("        " + line for line in pre),
        *(["        residual = None"] if threaded else []),
        "    else:",
        "        assert intermediate_tensors is not None",
        *(f'        {v} = intermediate_tensors["{v}"]' for v in values),
        "",
        f"    for {name} in islice(self.{decoder.layers}, self.start_layer, self.end_layer):",
        f"        {', '.join(values)} = {name}({', '.join(arguments)})",
        "",
        "    if not get_pp_group().is_last_rank:",
        f"        return IntermediateTensors({{{pairs}}})",
        *("    " + line for line in after),
        f"    return {hidden}",
    ]
    return Skeleton(lines, tuple(symbols), tuple(units))


def head_class(
    lowering: Lowering, head: Head, decoder: Decoder, stacked: tuple[Stacked, ...], dealt: dict[str, dict[str, str]]
) -> Skeleton:
    """The body of the architecture's class. ``dealt`` are the arguments of its check of the rank count."""
    frame = head.frame
    root = frame.module
    assert root is not None
    assert head.model.module is not None
    check_names(head.head_attr, head.model_attr)
    linear = head.linear.node
    layer = linear.args["module"]
    model_class = head.model.module.class_name
    attr, model = head.head_attr, head.model_attr
    bias = _config_text(root, layer, "bias")
    has_bias = bias != "False"
    arguments = [
        _config_text(root, layer, "out_features"),
        _config_text(root, layer, "in_features"),
        *([f"bias={bias}"] if has_bias else []),
        "quant_config=quant_config",
        f'prefix=maybe_prefix(prefix, "{attr}")',
    ]
    # what stands between the decoder's result and the head, and between the head and the result
    hidden = lowering.ctx.base(linear.args["input"])
    source = _last_hidden(lowering, head)
    pre: list[str] = []
    units: list[Unit] = []
    if hidden is not source:
        before, _ = lowering.select(frame, [hidden], [source])
        units += before
        pre = _renamed(lowering, before, source, "hidden_states")
    after, _ = lowering.select(frame, [head.logits], [head.linear])
    post: list[str] = []
    if lowering.ctx.base(head.logits) is not lowering.ctx.base(head.linear):
        units += after
        post = _renamed(lowering, after, head.linear, "logits")
    packed: dict[str, list[str]] = {}
    for s in stacked:
        packed.setdefault(s.target, []).append(s.source)
    logits = f"self.logits_processor(self.{attr}, hidden_states{f', self.{attr}.bias' if has_bias else ''})"
    embed = decoder.frame.module.attrs[decoder.embed_attr] if decoder.frame.module else None
    assert isinstance(embed, Instance)
    lines = [
        "packed_modules_mapping = {",
        *(
            f'    "{target}": [{", ".join(repr(p).replace(chr(39), chr(34)) for p in parts)}],'
            for target, parts in packed.items()
        ),
        "}",
        "hf_to_vllm_mapper = WeightsMapper(",
        "    orig_to_new_stacked={",
        "        # checkpoint name: (parameter, shard)",
        *(f'        ".{s.source}": (".{s.target}", {_literal(s.shard)}),' for s in stacked),
        "    }",
        ")",
        "",
        'def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:',
        "    super().__init__()",
        "    config = vllm_config.model_config.hf_config",
        "    quant_config = vllm_config.quant_config",
        "    self.config = config",
        "    self.quant_config = quant_config",
        f"    check_tensor_parallel({', '.join(f'{kind}={_mapping(held)}' for kind, held in dealt.items())})",
        f'    self.{model} = {model_class}(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "{model}"))',
        "    if get_pp_group().is_last_rank:",
        f"        self.{attr} = ParallelLMHead({', '.join(arguments)})",
        "        if config.tie_word_embeddings:",
        f"            self.{attr} = self.{attr}.tie_weights(self.{model}.{decoder.embed_attr})",
        "    else:",
        f"        self.{attr} = PPMissingLayer()",
        f"    self.logits_processor = LogitsProcessor({_config_text(root, layer, 'out_features')})",
        f"    self.make_empty_intermediate_tensors = self.{model}.make_empty_intermediate_tensors",
        f'    self.loader = CompleteLoader(vllm_config, embedding="{model}.{decoder.embed_attr}", head="{attr}")',
        "",
        "def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:",
        f"    return self.{model}.embed_input_ids(input_ids)",
        "",
        _FORWARD,
        f"    return self.{model}(input_ids, positions, intermediate_tensors, inputs_embeds)",
        "",
        "def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:",
        *("    " + line for line in pre),
        f"    logits = {logits}",
        *(["    if logits is not None:", *("        " + line for line in post)] if post else []),
        "    return logits",
        "",
        "def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:",
        "    return self.loader.load_weights(self, weights)",
    ]
    symbols = (
        "SupportsPP",
        "WeightsMapper",
        "VllmConfig",
        "maybe_prefix",
        "get_pp_group",
        "ParallelLMHead",
        "PPMissingLayer",
        "LogitsProcessor",
        "IntermediateTensors",
        "CompleteLoader",
        "check_tensor_parallel",
    )
    return Skeleton(lines, symbols, tuple(units))


def _last_hidden(lowering: Lowering, head: Head) -> Tensor:
    return lowering.ctx.base(head.hidden)


def _renamed(lowering: Lowering, units: list[Unit], start: object, name: str) -> list[str]:
    """Statements of a chain of units that carries one value, all under one name."""
    order = sorted(units, key=lambda u: max(u.covers))
    lines: list[str] = []
    for unit in order:
        if len(unit.inputs) != 1 or len(unit.outputs) != 1:
            raise refuse(
                "FUS401",
                "Around the layers, only operations on one value are supported.",
                place_of(unit.outputs[0].node),
            )
        slots = {"in0": name, "out0": name}
        lines += [line.format(**slots) for line in unit.code]
    return lines


def _mapping(texts: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"


def _literal(shard: str | int) -> str:
    return f'"{shard}"' if isinstance(shard, str) else str(shard)


def _config_text(owner: Instance, child: Instance, name: str) -> str:
    """A constructor argument in terms of the config alone (the source's attributes are not set in the port)."""
    assert child.ctor is not None
    value = child.ctor.arguments[name]
    return value.expr if type(value) is Sym else repr(value)


def _layer_count(decoder: Decoder) -> str:
    """The length of a layer list that is ``[Layer(...) for i in range(length)]``."""
    held = decoder.frame.module.attrs[decoder.layers] if decoder.frame.module else None
    assert isinstance(held, Instance)
    node = held.ctor.node if held.ctor else None
    built = node.args[0] if node is not None and len(node.args) == 1 else None
    if isinstance(built, ast.ListComp | ast.GeneratorExp) and len(built.generators) == 1:
        loop = built.generators[0]
        counted = loop.iter
        if (
            isinstance(counted, ast.Call)
            and isinstance(counted.func, ast.Name)
            and counted.func.id == "range"
            and len(counted.args) == 1
            and not loop.ifs
        ):
            return ast.unparse(counted.args[0])
    place = (
        Place(held.ctor.span.file, held.ctor.span.line, held.ctor.span.col + 1)
        if held.ctor and held.ctor.span
        else None
    )
    raise refuse("FUS401", "The layers are not built as [Layer(...) for i in range(number)].", place)


def _layer_text(decoder: Decoder, extra: tuple[str, ...]) -> str:
    """The constructor call of a layer inside ``make_layers``; its index comes from the prefix."""
    layer = decoder.calls[0].module
    assert layer is not None
    assert layer.ctor is not None
    call, span = layer.ctor.node, layer.ctor.span
    assert call is not None
    place = Place(span.file, span.line, span.col + 1) if span else None
    values = list(layer.ctor.arguments.items())
    by_name = dict(values)

    def text(node: ast.expr, value: object) -> str:
        if type(value) is Sym and value.expr == "layer_idx" and isinstance(node, ast.Name):
            return "extract_layer_index(prefix)"
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if not names <= {"config"} or (type(value) is Sym and value.layered):
            raise refuse(
                "FUS401", f"A layer is built with {ast.unparse(node)}, which the port does not have there.", place
            )
        return ast.unparse(node)

    arguments = [text(a, values[i][1]) for i, a in enumerate(call.args)]
    arguments += [f"{k.arg}={text(k.value, by_name.get(k.arg))}" for k in call.keywords if k.arg]
    arguments += ["prefix=prefix" if name == "prefix" else f"{name}={name}" for name in extra]
    return f"{layer.class_name}({', '.join(arguments)})"


__all__ = ["Skeleton", "decoder_class", "head_class", "statement_lines"]
