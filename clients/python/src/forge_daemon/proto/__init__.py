"""The protocol `forge.agent.v1` as Python code: a module for each file of `proto/forge/agent/v1`.

All but this file is generated: see `generate.py` beside the package's `pyproject.toml`.
"""
