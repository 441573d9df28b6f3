# SPDX-License-Identifier: Apache-2.0
"""The one kind of error that this package raises by itself."""


class Error(Exception):
    """One line for a person: what was wrong, where, and what to do."""
