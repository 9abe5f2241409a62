"""``python -m fusec`` is the ``fusec`` command."""

from fusec.cli import main

main()
