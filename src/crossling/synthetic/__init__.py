"""Synthetic languages: corpora and benchmarks with ground truth, for work without any download.

Meaning comes first. A `world` holds concepts in semantic classes, with selectional preferences and Zipfian frequencies.
`documents` samples coherent documents from it: a topic, a place, a recurring cast, a sequence of times. Each sentence
is a frame (`frames`): an event with participants, place, time, manner, quantity, tense, polarity and modality, and
perhaps a subordinate clause. A frame belongs to no language.

Languages then render frames. They differ in what natural languages differ in:

- Descent. A family has one ancestor (`lexicon`). Each language changes its words by regular sound changes
  (`phonology`) and replaces some, so related languages have cognates. Unrelated languages have only names and numbers
  in common.
- Script (`phonology`): Latin, Cyrillic, Greek, Devanagari, Hangul, Han, independent of descent. Words are separated by
  spaces in all of them. There are no capitals and no punctuation.
- Word order (`grammar`): SVO, SOV, VSO, or free with cases. Verb-final languages have postpositions, auxiliaries after
  the verb, and clauses before their head.
- Morphology: isolating, suffixing, prefixing, or agreement. A feature that is a function word in one language is an
  affix in another, or is not expressed.
- Words: some concepts have a synonym, some forms are ambiguous.

A family can write in two domains: stories of people, and a science of things with terms of its own. Languages and words
are the same, so that domain adaptation can be studied.

A `language` keeps the node of the frame that each word expresses. So word alignment is exact: content words of one node
are sure links, function words are possible links.

Resources are unequal, and bitext may get noise (`corpus_files`). Benchmarks hold out meanings, not strings (`heldout`):
no training sentence has the content of a test sentence. Retrieval sentences have no names, numbers or pronouns, and all
have the same parts and grammar. So neither spelling nor length nor function words identify a translation.

Tasks for fine-tuning (`task_folders`) come from the same meanings: NLI, paraphrase, QA, POS, NER, translation and
mining. They avoid the known shortcuts of real data sets and have the same examples in every language. The language with
the most text is the pivot, in which tasks are trained, as English elsewhere.

`synth` writes a folder. `frames` returns the meaning of every sentence in it.
"""

from crossling.synthetic.corpus_files import BitextNoise
from crossling.synthetic.generate import frames, synth
from crossling.synthetic.task_folders import ExampleCounts

__all__ = ["BitextNoise", "ExampleCounts", "frames", "synth"]
