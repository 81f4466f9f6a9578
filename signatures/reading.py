"""Read what a model really wrote.

Asked for a number, models answer `8/10`, `**8**`, `８` or "I would give it an eight"; asked for ids, they
answer in prose. The functions here turn such values into plain ones, or raise `ValueError` with one
clear line. They are pure, raise nothing else, and do not guess between two different readings.

Every reader begins the same way: broken characters are replaced; `<think>` blocks, field markers, code fences
and quotes round the whole are taken off; a text that is a JSON value is opened. Then:

* A **number** is looked for among all the numbers of the text, apart from ids (`I3`), names (`GPT-4`) and
  mentions of the scale itself (`1-10`). A fraction or a percentage is a share of the scale's top (`4/5` of 10
  is 8). A range (`7-8`, "between 7 and 8") is read as its middle. One number alone is the answer; of several,
  the final or labelled one (`Score: 8`), the only fraction, the first if the text opens with it, or the last
  if the text ends with it. Otherwise it is ambiguous.
* **Ids** are a kind letter and digits (`I7`), also written `#i7`, `IDEA-7`, `Idea 7`, `ideas 7 and 8`,
  `C 12`. `I 2` in a sentence is the pronoun and is left out; alone, or in a bare list of ids, it is `I2`.
* A **text** loses a leading label (`Comment:`) and is cut at a word boundary.
* A **choice** is the one option that is named, leaving out those that follow a "not".
"""

from __future__ import annotations

from .reading_ids import read_ids
from .reading_numbers import Reading, read_number
from .reading_texts import read_choice, read_name, read_text, shorten

__all__ = ["Reading", "read_choice", "read_ids", "read_name", "read_number", "read_text", "shorten"]
