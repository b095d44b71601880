"""Lets `kubernetes.aio` be imported alone.

The package's own `__init__` imports its synchronous half, which nothing here uses, with what that needs:
requests, OAuth, websockets, Google's and cryptography's modules. They are 17 MiB of memory and 330 modules.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec

NAME = "kubernetes"


def import_alone() -> None:
    """Put a package without content in the place of `kubernetes`, unless it has been imported already."""
    found = find_spec(NAME) if NAME not in sys.modules else None
    if found is None:
        return
    package = ModuleSpec(NAME, None, origin=found.origin, is_package=True)
    package.submodule_search_locations = found.submodule_search_locations
    sys.modules[NAME] = module_from_spec(package)


import_alone()
