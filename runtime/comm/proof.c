/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/comm/proof.h"

#include <errno.h>
#ifdef HAVE_LIBCRYPTO
#include <openssl/crypto.h>
#include <openssl/hmac.h>
#endif
#include <string.h>

#ifdef HAVE_LIBCRYPTO
int plait_proof_make(const char *secret, const unsigned char *text, size_t size,
                     unsigned char proof[PLAIT_PROOF_SIZE])
{
    if (HMAC(EVP_sha256(), secret, (int)strlen(secret), text, size, proof,
             NULL))
        return 0;
    errno = ENOSYS;
    return -1;
}

bool plait_proof_same(const unsigned char a[PLAIT_PROOF_SIZE],
                      const unsigned char b[PLAIT_PROOF_SIZE])
{
    return CRYPTO_memcmp(a, b, PLAIT_PROOF_SIZE) == 0;
}

int plait_proof_check(const char *secret, struct plait_error *err)
{
    (void)secret;
    (void)err;
    return 0;
}
#else
/* Without a secret a proof is empty; with one plait_proof_check() fails.
 */
int plait_proof_make(const char *secret, const unsigned char *text, size_t size,
                     unsigned char proof[PLAIT_PROOF_SIZE])
{
    (void)secret;
    (void)text;
    (void)size;
    memset(proof, 0, PLAIT_PROOF_SIZE);
    return 0;
}

bool plait_proof_same(const unsigned char a[PLAIT_PROOF_SIZE],
                      const unsigned char b[PLAIT_PROOF_SIZE])
{
    return memcmp(a, b, PLAIT_PROOF_SIZE) == 0;
}

int plait_proof_check(const char *secret, struct plait_error *err)
{
    if (!*secret)
        return 0;
    errno = ENOSYS;
    return plait_errorf(err, "PLAIT_SECRET is set, but this plait-train was "
                             "built without OpenSSL and cannot prove it; "
                             "rebuild it with libcrypto");
}
#endif
