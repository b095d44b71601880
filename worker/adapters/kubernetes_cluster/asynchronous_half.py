"""Lets `kubernetes.aio` be imported without the synchronous client of the same package.

Python runs `kubernetes/__init__.py` before any part of the package. That file imports the synchronous client,
which nothing here uses, with all it needs: requests, OAuth, websockets, modules of Google and of cryptography.
They cost a worker 17 of 122 MiB of memory, 0.16 of 1.47 seconds of CPU at the start, and 334 modules. An empty
package under that name is the only way around, since the package offers no switch.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec

NAME = "kubernetes"


def import_alone() -> None:
    """Put an empty package in the place of `kubernetes`, unless it has been imported already."""
    found = find_spec(NAME) if NAME not in sys.modules else None
    if found is None:
        return
    package = ModuleSpec(NAME, None, origin=found.origin, is_package=True)
    package.submodule_search_locations = found.submodule_search_locations
    sys.modules[NAME] = module_from_spec(package)


import_alone()
