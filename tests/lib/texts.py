# SPDX-License-Identifier: Apache-2.0
"""Texts that a tokenizer can get wrong: words of many scripts, each with its
marks, code, numbers, emoji, every kind of blank, characters of all of Unicode,
and bytes that are not UTF-8. No text is made twice, and a seed gives the same
ones again: texts.py FOLDER MEGABYTES [SEED], files of 100,000 bytes."""
import os
import random
import sys
import unicodedata

PIECE = 100000
# First and last letter, how many letters a word has, and what joins words.
SCRIPTS = (
    (0x61, 0x7a, 9, " "), (0x61, 0x7a, 9, " "), (0x41, 0x5a, 6, " "),
    (0xc0, 0x17f, 8, " "), (0x180, 0x24f, 6, " "), (0x370, 0x3ff, 8, " "),
    (0x400, 0x4ff, 9, " "), (0x531, 0x587, 7, " "), (0x590, 0x5ff, 6, " "),
    (0x600, 0x6ff, 7, " "), (0x700, 0x74f, 6, " "), (0x900, 0x97f, 8, " "),
    (0x980, 0x9ff, 7, " "), (0xa00, 0xa7f, 7, " "), (0xb80, 0xbff, 8, " "),
    (0xc00, 0xc7f, 7, " "), (0xd00, 0xd7f, 8, " "), (0xe00, 0xe7f, 20, ""),
    (0xe80, 0xeff, 20, ""), (0xf00, 0xfff, 6, "\u0f0b"),
    (0x1000, 0x109f, 15, ""), (0x10a0, 0x10ff, 7, " "),
    (0x1100, 0x11ff, 6, " "), (0x1200, 0x137f, 5, "\u1361"),
    (0x13a0, 0x13ff, 6, " "), (0x1780, 0x17ff, 15, ""),
    (0x1800, 0x18af, 7, " "), (0x1e00, 0x1eff, 6, " "),
    (0x1f00, 0x1fff, 6, " "), (0x3040, 0x30ff, 12, "\u3001"),
    (0x3100, 0x312f, 4, "\u3000"), (0x4e00, 0x9fff, 18, "\uff0c"),
    (0xac00, 0xd7a3, 4, " "), (0xff00, 0xffef, 8, " "),
    (0x10400, 0x1044f, 7, " "), (0x1d400, 0x1d7ff, 5, " "),
    (0x20000, 0x2a6df, 6, "\u3002"))
MARKS = [chr(c) for c in range(0x300, 0x370)]
TAILS = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'LL", "'Re",
         "'\u017f", "\u2019s", "''s", "'x", "'"]
BLANKS = [" ", "  ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r",
          " \n", "\n ", "   \n\n  ", "\u00a0", "\u2003", "\u3000", "\u2028",
          "\u0085", "\u200b", "\ufeff", "\v", "\f", "\u1680", "\u180e"]
DIGITS = ["0123456789"] * 4 + [
    "".join(map(chr, range(z, z + 10)))
    for z in (0x660, 0x6f0, 0x966, 0xe50, 0xff10, 0x1d7ce)]
ODD_NUMBERS = "\u00b2\u00bd\u2167\u2460\u3007\u0bf0\u19da\U00010107"
POINTS = list("!\"#$%&()*+,-./:;<=>?@[\\]^_`{|}~") + [
    "...", "\u2014", "\u00ab", "\u201c", "\u3002", "\u00bf", "\u20ac", "==",
    "!!!", "->", "//", "/*", "\u061f", "\u0964", "<|im_start|>", "<|x|>"]
EMOJI = ["\U0001f600", "\U0001f642", "\u2764\ufe0f", "\U0001f44d\U0001f3fd",
         "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
         "1\ufe0f\u20e3", "\u2603", "\U0001f3f4\U000e0067\U000e0062\U000e007f",
         "\U0001fae0", "\u263a", "\U0001f926\U0001f3fb\u200d\u2642\ufe0f"]


def letters(first, last):
    """All letters and marks in a range; digits and blanks come separately."""
    return [chr(c) for c in range(first, last + 1)
            if unicodedata.category(chr(c))[0] in "LM"]


def words_of(rng, script):
    first, last, size, between = script
    alphabet = letters(first, last)[:3000]
    weights = [1 / (1 + i) for i in range(len(alphabet))]
    rng.shuffle(weights)
    words = ["".join(rng.choices(alphabet, weights, k=rng.randint(1, size)))
             for _ in range(4000)]
    return words, between


class Texts:
    def __init__(self, seed, code):
        self.rng = random.Random(seed)
        self.vocabulary = [words_of(self.rng, s) for s in SCRIPTS]
        self.frequency = [1 / (1 + i) for i in range(4000)]
        self.code = code
        self.known = [chr(c) for c in range(0x20, 0x110000)
                      if unicodedata.category(chr(c)) not in ("Cn", "Cs")
                      and not 0xe000 <= c < 0xf900 and c < 0xf0000]

    def odd(self):
        """What stands between words now and then: numbers, marks, blanks."""
        rng = self.rng
        pick = rng.randrange(9)
        if pick < 2:
            digits = rng.choice(DIGITS)
            return "".join(rng.choices(digits, k=rng.randint(1, 9)))
        if pick == 2:
            return rng.choice(ODD_NUMBERS) + rng.choice(ODD_NUMBERS)
        if pick == 3:
            return "".join(rng.choices(EMOJI, k=rng.randint(1, 4)))
        if pick == 4:
            return "".join(rng.choices(BLANKS, k=rng.randint(1, 6)))
        if pick == 5:
            return "".join(rng.choices(self.known, k=rng.randint(1, 12)))
        if pick == 6:
            return rng.choice("aeoun\u0438\u0915\u3042") + "".join(
                rng.choices(MARKS, k=rng.randint(1, 4)))
        return "".join(rng.choices(POINTS, k=rng.randint(1, 3)))

    def prose(self):
        rng = self.rng
        words, between = rng.choice(self.vocabulary)
        said = rng.choices(words, self.frequency, k=rng.randint(3, 80))
        for i in range(0, len(said), rng.randint(2, 30)):
            said[i] += rng.choice(TAILS) if rng.random() < .3 else self.odd()
        text = between.join(said)
        if rng.random() < .2:
            text = unicodedata.normalize(rng.choice(["NFC", "NFD"]), text)
        return text

    def source(self):
        """Lines of source code, with names and numbers replaced at random."""
        rng = self.rng
        at = rng.randrange(len(self.code))
        lines = self.code[at:at + rng.randint(2, 20)]
        name = rng.choice(self.vocabulary[0][0])
        return "\n".join(lines).replace("size", name).replace(
            "0", str(rng.randrange(100000)))

    def piece(self, size):
        """A text of about `size` bytes; one text in ten has invalid UTF-8."""
        rng, parts, left = self.rng, [], size
        while left > 0:
            text = self.source() if rng.random() < .2 else self.prose()
            parts.append(text + rng.choice(["\n", "\n\n", " ", "\r\n"]))
            left -= len(parts[-1].encode())
        data = bytearray("".join(parts).encode())
        if rng.random() < .1:
            for _ in range(len(data) // 500):
                at = rng.randrange(len(data))
                data[at:at + rng.randrange(3)] = rng.randbytes(
                    rng.randint(1, 4))
        return bytes(data)

    def soup(self, size):
        """Random bytes; in every second call parts of it are sequences that
        tokenizers treat specially."""
        rng = self.rng
        data = bytearray(rng.randbytes(size))
        if rng.random() < .5:
            likely = [b" ", b"\n", b"x", b"'s", b"12", b"\xc3\xa9", b"\xe4",
                      b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\xaf"]
            for i in range(0, len(data), 3):
                data[i:i + 2] = rng.choice(likely)
        return bytes(data)


def source_lines():
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    lines = []
    for folder in ("runtime/data", "topology/plan", "tests/lib", "docs"):
        for name in sorted(os.listdir(f"{top}/{folder}")):
            if name.endswith((".c", ".h", ".py", ".sh", ".md")):
                with open(f"{top}/{folder}/{name}", encoding="utf-8") as file:
                    lines += file.read().split("\n")
    return lines


def main():
    folder, size = sys.argv[1], float(sys.argv[2]) * 1e6
    texts = Texts(int(sys.argv[3]) if len(sys.argv) > 3 else 1, source_lines())
    for i in range(30):
        with open(f"{folder}/soup-{i:02d}", "wb") as file:
            file.write(texts.soup(3000))
    for i in range(max(1, int(size / PIECE))):
        with open(f"{folder}/text-{i:05d}", "wb") as file:
            file.write(texts.piece(PIECE))


if __name__ == "__main__":
    main()
