"""Statistics of classification, regression and tagging metrics: accuracy, GLUE's metrics, seqeval's chunk F1.

Chunks are those of seqeval 0.0.12, the release that XTREME used. The first letter of a tag is its prefix (B, I, E, S or
another letter), and the text after its last hyphen its type. A POS tag has no hyphen: NOUN has the prefix N and the
type NOUN, and a run of equal tags is one chunk. SCONJ and SYM are exceptions, since their prefix S makes each tag a
chunk. (Releases since 0.0.16 remove the first letter from the type: CCONJ equals SCONJ, and X is never found.)

Strict chunks are those of seqeval's mode `strict` with the scheme IOB2: a B, and the I tags of its type that follow.
Above, an I after another type starts a chunk too.
"""
# N examples, S statistics

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from operator import eq

import numpy as np

from crossling.core.errors import BadInput

POSITIVE = "1"
OUTSIDE = "O"

Chunk = tuple[str, int, int]  # type, first word, last word
ChunkFinder = Callable[[Sequence[str]], set[Chunk]]  # tags of a sentence -> chunks


def accuracy_statistics(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """Return [correct, 1]."""
    pairs = zip(gold, predicted, strict=True)
    return np.array([(guess == label, 1) for label, guess in pairs], dtype=float).reshape(-1, 2)


def confusion_statistics(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:  # noqa: ARG001
    """Return [true positives, false positives, false negatives, true negatives] of the label 1."""
    gold_N, predicted_N = (np.array([label == POSITIVE for label in side], dtype=bool) for side in (gold, predicted))
    columns = [gold_N & predicted_N, ~gold_N & predicted_N, gold_N & ~predicted_N, ~gold_N & ~predicted_N]
    return np.stack(columns, axis=1).astype(float)


def f1_statistics(gold: Sequence[str], predicted: Sequence[str], language: str) -> np.ndarray:
    """Return [correct, predicted, gold] of the label 1."""
    tp_N, fp_N, fn_N, _ = confusion_statistics(gold, predicted, language).T
    return np.stack([tp_N, tp_N + fp_N, tp_N + fn_N], axis=1)


def pearson_statistics(gold: Sequence[float], predicted: Sequence[float], language: str) -> np.ndarray:  # noqa: ARG001
    """Return [1, x, y, xx, yy, xy] of standardized values, which keeps the correlation and avoids rounding errors."""
    return _moments(_to_numbers(gold), _to_numbers(predicted))


def spearman_statistics(gold: Sequence[float], predicted: Sequence[float], language: str) -> np.ndarray:  # noqa: ARG001
    """Return the moments of the ranks in the whole set. In a bootstrap sample, examples keep these ranks."""
    from scipy.stats import rankdata  # slow to import, and many modules import this one

    return _moments(rankdata(_to_numbers(gold)), rankdata(_to_numbers(predicted)))


def _to_numbers(values: Sequence[float]) -> np.ndarray:
    numbers_N = np.array([float(value) for value in values], dtype=float)
    if not np.isfinite(numbers_N).all():
        raise BadInput("correlation: a score is not a finite number. Check the predictions.")
    return numbers_N


def _moments(x_N: np.ndarray, y_N: np.ndarray) -> np.ndarray:
    x_N, y_N = _standardize(x_N), _standardize(y_N)
    return np.stack([np.ones_like(x_N), x_N, y_N, x_N * x_N, y_N * y_N, x_N * y_N], axis=1)


def _standardize(values_N: np.ndarray) -> np.ndarray:
    """Return values of mean 0 and deviation 1, or zeros if all values are equal."""
    if len(values_N) == 0 or (values_N == values_N[0]).all():
        return np.zeros_like(values_N)
    centered_N = values_N - values_N.mean()
    centered_N /= np.abs(centered_N).max()  # the square of a tiny difference would be 0
    return np.asarray(centered_N / centered_N.std())


def chunk_statistics(
    find: ChunkFinder,
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    language: str,  # noqa: ARG001
) -> np.ndarray:
    """Return [correct, predicted, gold] chunks."""
    chunks = [(find(tags), find(guesses)) for tags, guesses in _zip_sentences(gold, predicted)]
    rows = [(len(expected & found), len(found), len(expected)) for expected, found in chunks]
    return np.array(rows, dtype=float).reshape(-1, 3)


def token_statistics(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], language: str) -> np.ndarray:  # noqa: ARG001
    """Return [correct, total] words."""
    pairs = _zip_sentences(gold, predicted)
    return np.array([(sum(map(eq, *pair)), len(pair[0])) for pair in pairs], dtype=float).reshape(-1, 2)


def sentence_statistics(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    language: str,  # noqa: ARG001
) -> np.ndarray:
    """Return [all tags correct, 1]."""
    pairs = _zip_sentences(gold, predicted)
    return np.array([(all(map(eq, *pair)), 1) for pair in pairs], dtype=float).reshape(-1, 2)


def _zip_sentences(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    for tags, guesses in zip(gold, predicted, strict=True):
        if len(tags) != len(guesses):
            raise ValueError(f"{len(guesses)} tags for {len(tags)} words")
        yield tags, guesses


def find_chunks(tags: Sequence[str]) -> set[Chunk]:
    """Return the chunks of a sentence."""
    chunks = set()
    start, prefix, kind = 0, OUTSIDE, ""
    for word, tag in enumerate([*tags, OUTSIDE]):
        following = tag[0], tag.rpartition("-")[2]
        if _ends_chunk(prefix, kind, *following):
            chunks.add((kind, start, word - 1))
        if _starts_chunk(prefix, kind, *following):
            start = word
        prefix, kind = following
    return chunks


def find_strict_chunks(tags: Sequence[str]) -> set[Chunk]:
    """Return the chunks of a sentence in the scheme IOB2."""
    tags, chunks = list(tags), set()
    for first, tag in enumerate(tags):
        if tag.startswith("B-"):
            kind, last = tag.removeprefix("B-"), first
            while tags[last + 1 : last + 2] == [f"I-{kind}"]:
                last += 1
            chunks.add((kind, first, last))
    return chunks


def _ends_chunk(prefix: str, kind: str, next_prefix: str, next_kind: str) -> bool:
    is_last = prefix in "ES" or (prefix in "BI" and next_prefix in "BSO")
    return is_last or (prefix not in "O." and kind != next_kind)


def _starts_chunk(prefix: str, kind: str, next_prefix: str, next_kind: str) -> bool:
    is_first = next_prefix in "BS" or (prefix in "ESO" and next_prefix in "EI")
    return is_first or (next_prefix not in "O." and kind != next_kind)


# Statistics of question answering metrics: word F1 and exact match, the best over the correct answers.
#
# - SQuAD 1.1, also for XQuAD and TyDiQA in XTREME: removes English articles and ASCII punctuation, splits at spaces.
#   Chinese and Thai have no spaces, so F1 is hardly different from exact match.
# - MLQA, by the language of the context: removes all punctuation and the articles of five languages, splits Chinese
#   into characters.
# - SQuAD 2.0: as 1.1, and an empty answer is correct if the question has none.
# - CMRC 2018: removes the punctuation of a fixed list. F1 counts the longest run of words that both have in a row,
#   where a word is a Chinese character, or a token of the text between them. Exact match compares the text.
# - `characters`: as MLQA for every language, with each character of a script without spaces as a word.


AnswerTokenizer = Callable[[str, str], list[str]]  # (answer, language) -> words
AnswerScore = Callable[[list[str], list[str]], float]  # words of a correct answer, words of the prediction

_ASCII = str.maketrans("", "", string.punctuation)
_ENGLISH = re.compile(r"\b(a|an|the)\b")
_ARTICLES = {
    "en": _ENGLISH,
    "es": re.compile(r"\b(un|una|unos|unas|el|la|los|las)\b"),
    "vi": re.compile(r"\b(của|là|cái|chiếc|những)\b"),
    "de": re.compile(r"\b(ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "ar": re.compile("ال"),  # also inside a word: the script's other alternative can never match
}
_CHINESE = re.compile("[\u4e00-\u9fa5]")
# Han, kana, Thai, Lao, Myanmar, Khmer.
_WITHOUT_SPACES = re.compile(
    "[\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff]"
)


def squad_words(text: str, language: str) -> list[str]:  # noqa: ARG001
    """Return the words of an answer as SQuAD's script does."""
    return _ENGLISH.sub(" ", text.lower().translate(_ASCII)).split()


def mlqa_words(text: str, language: str) -> list[str]:
    """Return the words of an answer as MLQA's script does. The first language of `de-en` is that of the context."""
    language = language.split("-")[0]
    words = _remove_articles_and_punctuation(text, language)
    return _CHINESE.sub(r" \g<0> ", words).split() if language == "zh" else words.split()


# The ellipsis is not in the list: the program compares single characters with two of them.
_CMRC_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE_OR_OTHER = re.compile("[\u4e00-\u9fa5]|[^\u4e00-\u9fa5]+")
# NLTK's tokenizer, which the program uses for other scripts: punctuation and English clitics are words of their own. A
# comma within a number is not, and of single full stops only the last is.
_NLTK_APART = (
    r"""[«»“‘„”;@#$%&?!()\[\]{}<>"]|,(?!\d)|\.{2,}|\.(?=[\])}>"'»” ]*\Z)|n't\b|'(?:s|m|d|ll|re|ve)\b|'(?!\w)"""
)
_NLTK_WORDS = re.compile(rf"{_NLTK_APART}|(?:(?!{_NLTK_APART})\S)+")


def cmrc_text(text: str, language: str) -> list[str]:  # noqa: ARG001
    """Return the text of an answer as CMRC's script compares it for exact match, in a list."""
    return [text.lower().strip().translate(_CMRC_PUNCTUATION)]


def cmrc_words(text: str, language: str) -> list[str]:
    """Return the words of an answer as CMRC's script does."""
    [text] = cmrc_text(text, language)
    return [word for part in _CHINESE_OR_OTHER.findall(text) for word in _NLTK_WORDS.findall(part)]


def character_words(text: str, language: str) -> list[str]:
    """Return the words of an answer, with each character of a script without spaces as a word."""
    language = language.split("-")[0]
    words = _remove_articles_and_punctuation(text, "" if language == "ar" else language)
    return _WITHOUT_SPACES.sub(r" \g<0> ", words).split()


def answer_statistics(
    words: AnswerTokenizer, score: AnswerScore, gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str
) -> np.ndarray:
    """Return [score, 1], with the best score over the correct answers."""
    rows = []
    for answers, guess in zip(gold, predicted, strict=True):
        guessed = words(guess, language)
        rows.append((max((score(words(answer, language), guessed) for answer in answers), default=0.0), 1))
    return np.array(rows, dtype=float).reshape(-1, 2)


def squad2_statistics(
    score: AnswerScore, gold: Sequence[Sequence[str]], predicted: Sequence[str], language: str
) -> np.ndarray:
    """Return [score, 1]. Answers without words are dropped. If none is left, the empty answer is correct."""
    gold = [[text for text in answers if squad_words(text, language)] or [""] for answers in gold]
    return answer_statistics(squad_words, score, gold, predicted, language)


def exact_match(answer: list[str], guess: list[str]) -> float:
    """Return 1 if the words are equal, else 0."""
    return float(answer == guess)


def squad2_f1(answer: list[str], guess: list[str]) -> float:
    """Return the F1 of two bags of words. 1 if both are empty."""
    return word_f1(answer, guess) if answer and guess else exact_match(answer, guess)


def word_f1(answer: list[str], guess: list[str]) -> float:
    """Return the F1 of two bags of words. 0 if one or both are empty."""
    common = sum((Counter(answer) & Counter(guess)).values())
    return 2 * common / (len(answer) + len(guess)) if common else 0.0


def longest_run_f1(answer: list[str], guess: list[str]) -> float:
    """Return the F1 of the longest run of words that both have in a row. 0 if there is none."""
    size = SequenceMatcher(None, answer, guess, autojunk=False).find_longest_match().size
    return 2 * size / (len(answer) + len(guess)) if size else 0.0


def _remove_articles_and_punctuation(text: str, language: str) -> str:
    words = "".join(character for character in text.lower() if not _is_punctuation(character))
    return _ARTICLES[language].sub(" ", words) if language in _ARTICLES else words


@lru_cache(maxsize=1 << 16)
def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")
