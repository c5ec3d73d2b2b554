"""Settings of the local tools: which files and commands they may use, and how much output they return."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class LocalSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tools on the files of this machine. Off in the gateway unless named here."""

    enabled: Annotated[tuple[str, ...], Meta(description='their names, such as ["glob", "file_read"]')] = ()
    root: Annotated[str, Meta(min_length=1, description="the folder they can not leave")] = "."
    allow: Annotated[
        tuple[str, ...], Meta(description='names in it that are read although they may hold secrets: [".env.example"]')
    ] = ()
    writable: Annotated[
        tuple[str, ...],
        Meta(description='protected paths in it that tools may write without asking for them by name: ["AGENTS.md"]'),
    ] = ()
    policy: Annotated[
        Literal["ask", "trust"], Meta(description='"trust" lets writes and commands run without asking a person')
    ] = "ask"
    sandbox: Annotated[
        Literal["auto", "L0", "L1", "L2", "L3"], Meta(description="the level that commands run at; auto is the best")
    ] = "auto"
    allow_unconfined: Annotated[
        bool, Meta(description="offer bash although nothing can confine it here, or L0 was chosen")
    ] = False
    network: Annotated[
        bool, Meta(description="let a command have a network when it asks for one; never Treadle's own ports")
    ] = False
    env: Annotated[
        tuple[str, ...], Meta(description="more variables that commands see; a secret must be named exactly")
    ] = ()
    read: Annotated[tuple[str, ...], Meta(description="more folders that commands may read, as absolute paths")] = ()
    write: Annotated[tuple[str, ...], Meta(description="more folders that commands may write, as absolute paths")] = ()
    file_read_bytes_max: Annotated[int, Meta(ge=256, description="what file_read shows of a file at once")] = 51_200
    file_read_lines_max: Annotated[int, Meta(ge=1, description="the lines that file_read shows at once")] = 2_000
    line_chars_max: Annotated[
        int,
        Meta(ge=16, description="what file_read shows of a long line among others; the rest can be read on its own"),
    ] = 2_000
    listed_max: Annotated[int, Meta(ge=1, description="the entries that file_read lists of a folder")] = 10_000
    bash_bytes_max: Annotated[int, Meta(ge=256, description="what bash shows of what a command wrote")] = 32_768
    kept_bytes_max: Annotated[int, Meta(ge=1024, description="what is kept of it for output_read")] = 1_048_576
    output_read_bytes_max: Annotated[int, Meta(ge=256, description="what output_read shows at once at most")] = 49_152
    grep_matches_max: Annotated[int, Meta(ge=1, description="the largest limit that a call of grep may ask for")] = (
        1_000
    )
    grep_per_file_max: Annotated[int, Meta(ge=1, description="the matches that grep shows of one file")] = 20
    grep_line_chars_max: Annotated[int, Meta(ge=16, description="what grep shows of one line")] = 300
    glob_paths_max: Annotated[int, Meta(ge=1, description="the largest limit that a call of glob may ask for")] = 2_000
    outline_symbols_max: Annotated[int, Meta(ge=1, description="the definitions that outline lists")] = 400
    diff_lines_max: Annotated[int, Meta(ge=0, description="the lines of a diff that file_write and file_edit show")] = (
        80
    )
