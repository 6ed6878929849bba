"""Run the command line as ``python -m shampoo_queue.cli``."""

from . import main

raise SystemExit(main())
