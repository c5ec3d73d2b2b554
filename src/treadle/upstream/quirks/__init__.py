"""What single providers do otherwise than their protocol says: as data, and the edits that the data names.

A new quirk is a row with its source and a test from the bytes seen; nothing here is a guess.
"""

from treadle.upstream.quirks.profile import PRESETS as PRESETS
from treadle.upstream.quirks.profile import QUIRKS as QUIRKS
from treadle.upstream.quirks.profile import Quirk as Quirk
from treadle.upstream.quirks.profile import QuirkProfile as QuirkProfile
from treadle.upstream.quirks.profile import check_quirks as check_quirks
from treadle.upstream.quirks.profile import profile_of as profile_of
