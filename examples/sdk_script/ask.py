"""An ordinary script of the openai SDK. It knows nothing of Treadle and brings no tools."""

import sys

from openai import OpenAI

client = OpenAI()  # OPENAI_BASE_URL and OPENAI_API_KEY say whom to ask
question = " ".join(sys.argv[1:]) or "What is the price of article A7?"
answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": question}])
print(answer.choices[0].message.content)
