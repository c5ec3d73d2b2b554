"""The operations of the vendors' APIs. Requests and answers are theirs: loose here, and exact where a field is read."""

from treadle.server.openapi.operation import (
    ANY,
    COUNT,
    EVENTS,
    FLAG,
    JSON,
    KEY,
    TEXT,
    Content,
    Operation,
    Schema,
    fields,
    gives,
    listed,
    number,
    one_of,
    request,
    streams,
    text,
)

OBJECTS: Schema = {"type": "array", "items": {}}
ITEMS = fields(object={"const": "list"}, data=listed(ANY), has_more=FLAG, first_id={}, last_id={})
CONVERSATION = fields(id=TEXT, object={"const": "conversation"}, created_at=COUNT, metadata=ANY)
PAGES = (
    number("limit", "how many, at most", least=1, most=100),
    one_of("order", "oldest or newest first", "asc", "desc"),
    text("after", "the last id of the page before"),
)
CHAT = request("model", "messages", model=TEXT, messages=OBJECTS, stream={}, tools={})
RESPONSE = request(model={}, input={}, stream={}, tools={}, previous_response_id={}, background={}, store={})
MESSAGE = request("model", "messages", model=TEXT, messages=OBJECTS, max_tokens=COUNT, stream={}, tools={})
GEMINI = request("contents", contents={}, tools={}, generationConfig={}, systemInstruction={})
METADATA = request(metadata={}, items={})
ALT = text("alt", "`sse` for frames instead of a JSON array")
_GEMINI_ACTIONS = (
    ("generateContent", "Answer", gives(ANY), ()),
    ("streamGenerateContent", "Answer as a stream", {200: (Content(JSON, {}), Content(EVENTS))}, (ALT,)),
    ("countTokens", "Estimate the tokens of a request", gives(fields(totalTokens=COUNT)), ()),
)
_GEMINI_ROUTES = (
    "/v1beta/models/{model*}",
    "/v1beta/tunedModels/{model*}",
    "/v1/models/{model*}",
    "/v1/tunedModels/{model*}",
)
GEMINI_OPERATIONS = tuple(
    Operation(
        method="POST",
        route=route,
        path=f"{route}:{action}",
        summary=summary,
        tag="Gemini",
        query=query,
        headers=() if action == "countTokens" else (KEY,),
        body=request() if action == "countTokens" else GEMINI,
        answers=answers,
    )
    for route in _GEMINI_ROUTES
    for action, summary, answers, query in _GEMINI_ACTIONS
)
_MODELS = tuple(
    operation
    for prefix in ("/v1", "/v1beta")
    for operation in (
        Operation(
            method="GET",
            route=f"{prefix}/models",
            summary="List the models, in the shape of the API that asks",
            tag="Models",
            answers=gives(ANY),
            reads=True,
        ),
        Operation(
            method="GET",
            route=f"{prefix}/models/{{model*}}",
            summary="Show one model",
            tag="Models",
            answers=gives(ANY),
            reads=True,
        ),
    )
)
OPERATIONS = (
    Operation(
        method="POST",
        route="/v1/chat/completions",
        summary="Answer as Chat Completions does",
        tag="Chat Completions",
        headers=(KEY,),
        body=CHAT,
        answers=streams(ANY),
    ),
    Operation(
        method="POST",
        route="/v1/responses",
        summary="Make a response, streamed or not, perhaps in the background",
        tag="Responses",
        headers=(KEY,),
        body=RESPONSE,
        answers=streams(ANY),
    ),
    Operation(
        method="GET",
        route="/v1/responses",
        summary="A WebSocket is not spoken: clients are sent back to POST",
        tag="Responses",
    ),
    Operation(
        method="POST",
        route="/v1/responses/input_tokens",
        summary="Estimate the tokens of a request",
        tag="Responses",
        body=RESPONSE,
        answers=gives(fields(object=TEXT, input_tokens=COUNT)),
    ),
    Operation(
        method="POST",
        route="/v1/responses/compact",
        summary="Compact a conversation into one item",
        tag="Responses",
        body=RESPONSE,
        answers=gives(ANY),
    ),
    Operation(
        method="GET",
        route="/v1/responses/{response_id}",
        summary="Show a stored response, or stream it again",
        tag="Responses",
        query=(
            one_of("stream", "tell it as events", "true", "false"),
            number("starting_after", "the number of the last event that is known; needs stream=true"),
        ),
        answers=streams(ANY),
        reads=True,
    ),
    Operation(
        method="DELETE",
        route="/v1/responses/{response_id}",
        summary="Forget a response; one that goes on is cancelled first",
        tag="Responses",
        answers=gives(fields(id=TEXT, object=TEXT, deleted=FLAG)),
    ),
    Operation(
        method="GET",
        route="/v1/responses/{response_id}/input_items",
        summary="List all that the model read",
        tag="Responses",
        query=PAGES,
        answers=gives(ITEMS),
        reads=True,
    ),
    Operation(
        method="POST",
        route="/v1/responses/{response_id}/cancel",
        summary="End a background response",
        tag="Responses",
        answers=gives(ANY),
    ),
    Operation(
        method="POST",
        route="/v1/conversations",
        summary="Make a conversation",
        tag="Conversations",
        body=METADATA,
        needs_body=False,
        answers=gives(CONVERSATION),
    ),
    Operation(
        method="GET",
        route="/v1/conversations/{conversation_id}",
        summary="Show a conversation",
        tag="Conversations",
        answers=gives(CONVERSATION),
        reads=True,
    ),
    Operation(
        method="POST",
        route="/v1/conversations/{conversation_id}",
        summary="Give a conversation other metadata",
        tag="Conversations",
        body=METADATA,
        needs_body=False,
        answers=gives(CONVERSATION),
    ),
    Operation(
        method="DELETE",
        route="/v1/conversations/{conversation_id}",
        summary="Forget a conversation; its responses stay",
        tag="Conversations",
        answers=gives(fields(id=TEXT, object=TEXT, deleted=FLAG)),
    ),
    Operation(
        method="GET",
        route="/v1/conversations/{conversation_id}/items",
        summary="List the items of a conversation",
        tag="Conversations",
        query=PAGES,
        answers=gives(ITEMS),
        reads=True,
    ),
    Operation(
        method="POST",
        route="/v1/conversations/{conversation_id}/items",
        summary="Add items to a conversation",
        tag="Conversations",
        body=request("items", items=OBJECTS),
        answers=gives(ITEMS),
    ),
    Operation(
        method="GET",
        route="/v1/conversations/{conversation_id}/items/{item_id}",
        summary="Show an item of a conversation",
        tag="Conversations",
        answers=gives(ANY),
        reads=True,
    ),
    Operation(
        method="DELETE",
        route="/v1/conversations/{conversation_id}/items/{item_id}",
        summary="Take an item out of a conversation",
        tag="Conversations",
        answers=gives(CONVERSATION),
    ),
    Operation(
        method="POST",
        route="/v1/messages",
        summary="Answer as Anthropic Messages does",
        tag="Messages",
        headers=(KEY,),
        body=MESSAGE,
        answers=streams(ANY),
    ),
    Operation(
        method="POST",
        route="/v1/messages/count_tokens",
        summary="Estimate the tokens of a request",
        tag="Messages",
        body=MESSAGE,
        answers=gives(fields(input_tokens=COUNT)),
    ),
    *GEMINI_OPERATIONS,
    *_MODELS,
)
