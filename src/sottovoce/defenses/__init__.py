"""Transforms that defend a target. Put them in front of it with `sottovoce.core.transform.Defended`."""
