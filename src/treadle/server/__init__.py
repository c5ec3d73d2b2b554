"""The server: HTTP in front of the runtime, and the pages.

Routes translate and pass on: no protocol's words, no loop, no state of a run. `web/` is shipped as it is written,
without a build step; `web/vendor/manifest.json` says what of it is not ours.
"""
