/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "topology/base/proof.h"
#include "topology/base/sha256.h"

static const char *hex(const unsigned char *bytes)
{
    static char text[2 * PLAIT_SHA256_SIZE + 1];

    for (int i = 0; i < PLAIT_SHA256_SIZE; i++)
        sprintf(text + 2 * i, "%02x", bytes[i]);
    return text;
}

/* ---- SHA-256: the examples that NIST publishes for FIPS 180-4 ---- */

static const char *hash(const char *text, size_t times, size_t piece)
{
    unsigned char digest[PLAIT_SHA256_SIZE];
    struct plait_sha256 state;

    plait_sha256_begin(&state);
    for (size_t i = 0; i < times; i++)
        for (size_t at = 0; at < strlen(text); at += piece)
            plait_sha256_add(&state, text + at,
                             strlen(text) - at < piece ? strlen(text) - at
                                                       : piece);
    plait_sha256_end(&state, digest);
    return hex(digest);
}

static void check_hash(void)
{
    static const struct {
        const char *text;
        size_t times;
        const char *digest;
    } cases[] = {
        {"", 1,
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 1,
         "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
         "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
        {"a", 1000000,
         "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        for (size_t piece = 1; piece < 120; piece += 17)
            if (!ok(strcmp(hash(cases[i].text, cases[i].times, piece),
                           cases[i].digest) == 0,
                    "SHA-256 example %zu in pieces of %zu", i, piece))
                diag("%s", hash(cases[i].text, cases[i].times, piece));
}

/* ---- HMAC: the cases of RFC 4231 ---- */

static char *repeat(int byte, size_t n)
{
    char *text = calloc(1, n + 1);

    if (!text)
        abort();
    memset(text, byte, n);
    return text;
}

static void check_case(int number, char *key, const char *text, size_t size,
                       const char *wanted, size_t digits)
{
    unsigned char proof[PLAIT_PROOF_SIZE];

    plait_proof_make(key, (const unsigned char *)text, size, proof);
    ok(strncmp(hex(proof), wanted, digits) == 0, "RFC 4231, case %d", number);
    free(key);
}

static void check_rfc(void)
{
    char *counted = repeat(0, 25), *dd = repeat(0xdd, 50),
         *cd = repeat(0xcd, 50);
    static const char large[] =
        "This is a test using a larger than block-size key and a larger than "
        "block-size data. The key needs to be hashed before being used by the "
        "HMAC algorithm.";

    for (int i = 0; i < 25; i++)
        counted[i] = (char)(i + 1);
    check_case(
        1, repeat(0x0b, 20), "Hi There", 8,
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7", 64);
    check_case(
        2, strdup("Jefe"), "what do ya want for nothing?", 28,
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843", 64);
    check_case(
        3, repeat(0xaa, 20), dd, 50,
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe", 64);
    check_case(
        4, counted, cd, 50,
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b", 64);
    check_case(5, repeat(0x0c, 20), "Test With Truncation", 20,
               "a3b6167473100ee06e0c796c2955552b", 32);
    check_case(
        6, repeat(0xaa, 131),
        "Test Using Larger Than Block-Size Key - Hash Key First", 54,
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", 64);
    check_case(
        7, repeat(0xaa, 131), large, strlen(large),
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2", 64);
    free(dd);
    free(cd);
}

/* ---- random texts, against Python's hmac ---- */

static size_t read_hex(const char *text, char *bytes)
{
    size_t n = strlen(text) / 2;
    unsigned byte;

    for (size_t i = 0; i < n; i++) {
        sscanf(text + 2 * i, "%2x", &byte);
        bytes[i] = (char)byte;
    }
    bytes[n] = '\0';
    return n;
}

/* Each line is a key, a text behind a '.', and the proof, in hexadecimal. */
static void check_python(void)
{
    FILE *python = popen(
        "python3 -c 'import hmac, random\n"
        "for i in range(200):\n"
        "    key = bytes(random.randrange(1, 256) for _ in range(1 + i))\n"
        "    text = random.randbytes(random.randrange(700))\n"
        "    print(key.hex(), \".\" + text.hex(),\n"
        "          hmac.new(key, text, \"sha256\").hexdigest())'",
        "r");
    static char line[4096], key[512], text[2048], sum[128];
    char secret[256], bytes[1024];
    unsigned char proof[PLAIT_PROOF_SIZE];
    int lines = 0, wrong = 0;

    while (python && fgets(line, sizeof(line), python)) {
        if (sscanf(line, "%511s .%2047[0-9a-f] %127s", key, text, sum) != 3 &&
            (sscanf(line, "%511s . %127s", key, sum) != 2 || (*text = '\0')))
            break;
        read_hex(key, secret);
        plait_proof_make(secret, (unsigned char *)bytes, read_hex(text, bytes),
                         proof);
        wrong += strcmp(hex(proof), sum) != 0;
        lines++;
    }
    if (!python || pclose(python) == 127 << 8)
        skip("no python3");
    else
        ok(lines == 200 && !wrong, "%d of %d proofs differ from Python's",
           wrong, lines);
}

/* ---- comparing ---- */

static void check_same(void)
{
    unsigned char a[PLAIT_PROOF_SIZE], b[PLAIT_PROOF_SIZE];
    int missed = 0;

    for (int i = 0; i < PLAIT_PROOF_SIZE; i++)
        a[i] = (unsigned char)(7 * i);
    memcpy(b, a, sizeof(b));
    ok(plait_proof_same(a, b), "equal proofs are the same");
    for (int bit = 0; bit < 8 * PLAIT_PROOF_SIZE; bit++) {
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
        missed += plait_proof_same(a, b);
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    ok(!missed, "%d of 256 proofs that differ in a bit count as the same",
       missed);
}

int main(void)
{
    check_hash();
    check_rfc();
    check_python();
    check_same();
    return done_testing();
}
