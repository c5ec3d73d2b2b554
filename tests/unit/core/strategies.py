"""Hypothesis strategies for the canonical nouns, shared by every property test that needs a conversation."""

import msgspec
from hypothesis import strategies as st

from treadle.core.items import (
    Blob,
    CallItem,
    FilePart,
    ImagePart,
    MessageItem,
    OpaqueItem,
    OpaquePart,
    ReasoningItem,
    RefusalPart,
    ResultItem,
    TextPart,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
words = st.from_regex(r"[a-z][a-z0-9_-]{0,12}", fullmatch=True)
raws = st.sampled_from([b"{}", b'{"a":1}', b"[1,2]", b'"x"']).map(msgspec.Raw)
parts = st.one_of(
    st.builds(TextPart, text=texts, annotations=st.none() | raws),
    st.builds(RefusalPart, text=texts),
    st.builds(ImagePart, url=st.just("https://example.org/a.png"), detail=st.none() | st.just("low")),
    st.builds(FilePart, file_id=words, filename=st.none() | words),
    st.builds(OpaquePart, protocol=st.just("chat"), raw=raws),
)
blobs = st.builds(Blob, provider=words, kind=words, data=texts, model=words)
messages = st.builds(
    MessageItem,
    id=words,
    role=st.sampled_from(["system", "developer", "user", "assistant"]),
    content=st.lists(parts, max_size=3).map(tuple),
    name=st.none() | words,
    phase=st.none() | st.just("commentary"),
    is_partial=st.booleans(),
)
reasonings = st.builds(
    ReasoningItem,
    id=words,
    summary=st.lists(texts, max_size=2).map(tuple),
    text=st.lists(texts, max_size=2).map(tuple),
    blobs=st.lists(blobs, max_size=1).map(tuple),
)
calls = st.builds(
    CallItem,
    id=words,
    call_id=words,
    name=words,
    arguments=st.sampled_from(['{"a":1}', "{}", "", '{"city":"Zürich"}', "not json", "[1]"]),
    kind=st.sampled_from(["function", "custom"]),
    side=st.sampled_from(["server", "client"]),
    raw=st.none() | texts,
    upstream_id=st.none() | words,
)
results = st.builds(
    ResultItem,
    id=words,
    call_id=words,
    name=words,
    output=st.lists(parts, max_size=2).map(tuple),
    is_error=st.booleans(),
    summary=st.none() | texts,
    rc=st.sampled_from(["ok", "failed", "timeout"]),
)
opaques = st.builds(OpaqueItem, id=words, protocol=st.just("responses"), raw=raws)
items = st.one_of(messages, reasonings, calls, results, opaques)
