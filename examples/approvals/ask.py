"""A client that knows nothing of approvals: its request simply takes until somebody has decided."""

from openai import OpenAI

question = {"role": "user", "content": "Use delete_log for the file old.log"}
stream = OpenAI().chat.completions.create(model="demo", messages=[question], stream=True)  # pyright: ignore[reportCallIssue]
for chunk in stream:
    if chunk.choices and chunk.choices[0].delta.content:
        print(chunk.choices[0].delta.content, end="", flush=True)
print()
