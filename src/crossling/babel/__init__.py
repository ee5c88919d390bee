"""Constructed language families: corpora and benchmarks with known truth, for work without any download.

Meaning comes first. A world (`world`) holds concepts in semantic classes, with selectional preferences and
Zipfian frequencies. Stories (`story`) turn it into coherent documents: a topic, a place, a cast that comes
back under its name, as a known noun or as a pronoun, and time that moves on. Each sentence is a frame
(`frame`): an event with its participants, place, time, manner, quantity, tense, polarity and modality, and
perhaps a subordinate clause. Nothing in a frame belongs to any language.

Then languages say it. What they differ in is what the world's languages differ in:

- Descent. A family has one ancestor (`lexicon`). Each daughter language changes its words by regular sound laws
  (`phonology`) and replaces some, so cousins share cognates. Families share nothing but what real ones share:
  names, as far as a language's sounds allow, and numbers, written in digits.
- Script (`script`): Latin, Cyrillic, Greek, Devanagari, Hangul, Han. Cousins may write differently, and
  strangers alike, so a script tells little about descent. Words are separated by spaces in all of them, and
  there are no capitals and no punctuation.
- Word order (`grammar`): SVO, SOV, VSO, or free with cases that tell the participants apart. With the verb
  at the end come postpositions, auxiliaries after the verb and clauses before what they depend on.
- Morphology: isolating (a word for each meaning), suffixing, prefixing, or agreement, where verbs agree with
  their subject and may then drop its pronoun, and adjectives agree with nouns. What one language says by a
  function word another says by an affix, or not at all.
- Words: some concepts have a synonym, some forms mean two things.

One family can write in two domains (`domain`): stories of people, and a science of things with terms of its own.
Languages and words are the same, what is said is not, so that adapting a model to a domain can be studied.

A language (`language`) keeps, for each word that it says, the node of the frame that the word expresses. So
word alignment (`alignment`) is not annotated but known: content words of one node are sure links, function
words and what corresponds to them are possible ones.

Resources are unequal (`resources`), bitext may be damaged at stated rates (`noise`), and the benchmarks hold
out meaning, not strings (`heldout`): no training sentence of any language has the content of a test
sentence. Retrieval sentences have no names, numbers or pronouns, all have the same parts (who, of what kind,
did what, to what, of what kind, when) and the same grammar, so that neither spelling nor length nor function
words give them away across families: only what the words mean does.

The tasks that models are fine-tuned for (`tasks`) are made of the same meaning: inference, paraphrase, answering,
tagging, translation, and the mining of bitext. Each holds out what it says, from the corpora and from its own training
set, closes the shortcuts that real ones are known for, and has the same examples in every language. The language with
the most text is the pivot, in which tasks are trained, as English is elsewhere.

`babel` writes a folder; `frames` gives the meaning of every sentence in it back, for further tasks.
"""

from crossling.babel.folder import babel, frames
from crossling.babel.noise import Noise
from crossling.babel.tasks import Examples

__all__ = ["Examples", "Noise", "babel", "frames"]
