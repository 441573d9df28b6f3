/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/cli/credential.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Types and constants of libmunge.so.2. */
struct munge_ctx;
enum { OPT_SOCKET = 8, OPT_UID_RESTRICTION = 9, GOOD = 0, REPLAYED = 17 };

struct credentials {
    void *library;
    /* Two contexts, since decoding leaves options of the credential in its
     * context. */
    struct munge_ctx *encoder, *decoder;
    struct munge_ctx *(*create)(void);
    void (*destroy)(struct munge_ctx *ctx);
    int (*set)(struct munge_ctx *ctx, int option, ...);
    int (*encode)(char **credential, struct munge_ctx *ctx, const void *text,
                  int length);
    int (*decode)(const char *credential, struct munge_ctx *ctx, void **text,
                  int *length, uid_t *uid, gid_t *gid);
    const char *(*describe)(int code);
};

static int find_symbols(struct credentials *c)
{
    const struct {
        const char *name;
        void *at; /* of a function pointer */
    } symbols[] = {
        {"munge_ctx_create", &c->create}, {"munge_ctx_destroy", &c->destroy},
        {"munge_ctx_set", &c->set},       {"munge_encode", &c->encode},
        {"munge_decode", &c->decode},     {"munge_strerror", &c->describe},
    };

    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(c->library, symbols[i].name);

        if (!symbol)
            return -1;
        memcpy(symbols[i].at, &symbol, sizeof(symbol));
    }
    return 0;
}

static int create_context(struct credentials *c, const char *socket,
                          struct munge_ctx **ctx, struct plait_error *err)
{
    int code = GOOD;

    *ctx = c->create();
    if (!*ctx)
        return plait_errorf(err, "out of memory");
    if (*socket)
        code = c->set(*ctx, OPT_SOCKET, socket);
    return code == GOOD ? 0
                        : plait_errorf(err, "munge: %.200s", c->describe(code));
}

struct credentials *credentials_create(const char *socket,
                                       struct plait_error *err)
{
    struct credentials *c = calloc(1, sizeof(*c));

    if (!c) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    c->library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!c->library || find_symbols(c) < 0)
        plait_errorf(err, "munge's library cannot be loaded: %.200s",
                     dlerror());
    else if (create_context(c, socket, &c->encoder, err) == 0 &&
             create_context(c, socket, &c->decoder, err) == 0)
        return c;
    credentials_destroy(c);
    return NULL;
}

void credentials_destroy(struct credentials *c)
{
    int saved = errno;

    if (!c)
        return;
    if (c->encoder)
        c->destroy(c->encoder);
    if (c->decoder)
        c->destroy(c->decoder);
    if (c->library)
        dlclose(c->library);
    free(c);
    errno = saved;
}

int credentials_seal(struct credentials *c, const char *text, char *credential,
                     size_t size, struct plait_error *err)
{
    char *made = NULL;
    int code = c->set(c->encoder, OPT_UID_RESTRICTION, geteuid()), rc = 0;

    if (code == GOOD)
        code = c->encode(&made, c->encoder, text, (int)strlen(text));
    if (code != GOOD)
        return plait_errorf(err, "munge: %.200s", c->describe(code));
    if (strlen(made) >= size)
        rc = plait_errorf(err,
                          "munge: the credential is longer than %zu "
                          "characters",
                          size - 1);
    else
        strcpy(credential, made);
    free(made);
    return rc;
}

int credentials_open(struct credentials *c, const char *credential, int again,
                     char *text, size_t size, struct plait_error *err)
{
    void *found = NULL;
    int length = 0, rc = 0, code;
    uid_t uid = (uid_t)-1;
    gid_t gid;

    code = c->decode(credential, c->decoder, &found, &length, &uid, &gid);
    if (code != GOOD && !(again && code == REPLAYED))
        rc = plait_errorf(err, "munge: %.200s", c->describe(code));
    else if (uid != geteuid())
        rc = plait_errorf(err, "munge: user %u wrote it", (unsigned)uid);
    else if (!found || length < 0 || (size_t)length >= size)
        rc = plait_errorf(err, "munge: it holds %d bytes", length);
    else
        snprintf(text, size, "%.*s", length, (const char *)found);
    free(found);
    return rc;
}
