import pytest

from treadle.core.items import Blob
from treadle.protocols.responses.encrypted_content import seal, unseal

OWN = Blob(provider="openai", kind="encrypted_content", data="gAAA")


@pytest.mark.parametrize(
    "blobs",
    [
        (),
        (OWN,),
        (
            Blob(provider="up", kind="encrypted_content", data="zz", model="m"),
            Blob(provider="up", kind="item_id", data="rs"),
        ),
        (Blob(provider="anthropic", kind="signature", data="é😀"),),
        (Blob(provider="openai", kind="encrypted_content", data="x", model="m"),),
    ],
)
def test_state_survives_the_way_to_a_client_and_back(blobs: tuple[Blob, ...]) -> None:
    """Whose the state is and what it is bound to come back with it."""
    assert unseal(seal(blobs)) == blobs


def test_openais_own_state_travels_as_it_is() -> None:
    """What OpenAI sealed itself needs no mark, and what bears none is OpenAI's."""
    assert seal((OWN,)) == "gAAA"
    assert unseal("gAAA") == (OWN,)
    assert seal(()) == ""
    assert unseal("") == ()


@pytest.mark.parametrize(
    "text", ["treadle.1.", "treadle.1.%%%", "treadle.1.e30=", "treadle.1.W3t9XQ==", "treadle.1.W10"]
)
def test_a_broken_seal_is_carried_on_unread(text: str) -> None:
    """A client that cut or forged a seal breaks nothing: its provider will refuse it."""
    assert unseal(text) == (Blob(provider="openai", kind="encrypted_content", data=text),)


def test_a_seal_with_foreign_letters_in_it_is_broken() -> None:
    """They are not skipped: somebody changed it."""
    sealed = seal((Blob(provider="up", kind="item_id", data="rs"),))
    changed = f"{sealed[:14]}!{sealed[14:]}"
    assert unseal(changed) == (Blob(provider="openai", kind="encrypted_content", data=changed),)
