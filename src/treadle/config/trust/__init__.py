"""Whether the file of a working directory may be used: what it would do, and who agreed to it."""

from treadle.config.trust.bound import MISSING as MISSING
from treadle.config.trust.bound import bound_files as bound_files
from treadle.config.trust.deeds import list_deeds as list_deeds
from treadle.config.trust.memory import Doubt as Doubt
from treadle.config.trust.memory import State as State
from treadle.config.trust.memory import Trust as Trust
from treadle.config.trust.memory import Untrusted as Untrusted
from treadle.config.trust.memory import words_of as words_of
