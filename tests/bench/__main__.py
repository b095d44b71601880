"""`make bench`: see docs/benchmarks.md."""

from __future__ import annotations

import asyncio

from tests.bench.parts import main

if __name__ == "__main__":
    asyncio.run(main())
