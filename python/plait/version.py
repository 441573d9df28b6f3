# SPDX-License-Identifier: Apache-2.0
"""The version, the same as Plait's own."""
__version__ = "0.9.0"
