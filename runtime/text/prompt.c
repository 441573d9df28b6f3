/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/text/prompt.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/consensus.h"

/* -- the tokenizer ------------------------------------------------------- */

/* Open the tokenizer in a file of a directory, as "bpe:DIR/tokenizer.json";
 * NULL with no text in err if there is no such file. */
static struct plait_tokenizer *open_file(const char *kind, const char *dir,
                                         const char *name,
                                         struct plait_error *err)
{
    char spec[4200];

    snprintf(spec, sizeof(spec), "%s:%s/%s", kind, dir, name);
    if (access(spec + strlen(kind) + 1, F_OK) < 0)
        return NULL;
    return plait_tokenizer_create(spec, err);
}

/* If tokenizer.json is of a kind that plait does not support, the same
 * tokenizer may be there as SentencePiece's file. It is not the same where
 * tokens were added to tokenizer.json alone, such as "<|im_start|>". */
static struct plait_tokenizer *find_in(const char *dir, struct plait_error *err)
{
    struct plait_tokenizer *t = open_file("bpe", dir, "tokenizer.json", err);
    struct plait_error other = {""};
    char json[4200];

    if (t)
        return t;
    t = open_file("spm", dir, "tokenizer.model", &other);
    snprintf(json, sizeof(json), "%s/tokenizer.json", dir);
    if (t && err->text[0] && plait_tokenizer_has_added(t, json, err) < 0) {
        plait_tokenizer_destroy(t);
        return NULL;
    }
    if (t)
        err->text[0] = '\0';
    else if (!err->text[0])
        *err = other;
    return t;
}

static struct plait_tokenizer *find(const struct plait_tokenizer_source *s,
                                    struct plait_error *err)
{
    struct plait_tokenizer *t = NULL;
    char above[4200];

    if (s->spec)
        return plait_tokenizer_create(s->spec, err);
    if (s->data)
        t = plait_tokenizer_beside(s->data, err);
    if (s->dir && !t && !err->text[0])
        t = find_in(s->dir, err);
    if (s->dir && !t && !err->text[0]) {
        snprintf(above, sizeof(above), "%s/..", s->dir);
        t = find_in(above, err);
    }
    if (!t && !err->text[0] && s->vocab == PLAIT_BYTE_VOCAB)
        t = plait_tokenizer_create("byte", err);
    return t;
}

struct plait_tokenizer *
plait_tokenizer_find(const struct plait_tokenizer_source *source,
                     struct plait_error *err)
{
    struct plait_tokenizer *t;
    const char *path;
    int vocab;

    err->text[0] = '\0';
    t = find(source, err);
    if (!t || (vocab = plait_tokenizer_vocab(t)) <= source->vocab)
        return t;
    path = plait_tokenizer_path(t);
    plait_errorf(err, "the tokenizer %s has %d tokens, model.vocab is %d",
                 path ? path : plait_tokenizer_name(t), vocab, source->vocab);
    plait_tokenizer_destroy(t);
    return NULL;
}

/* -- the tokens that end a text ------------------------------------------ */

static json_t *load_generation_config(const char *tokenizer)
{
    const char *slash = strrchr(tokenizer, '/');
    char file[4200];

    snprintf(file, sizeof(file), "%.*sgeneration_config.json",
             slash ? (int)(slash - tokenizer + 1) : 0, tokenizer);
    return json_load_file(file, 0, NULL);
}

static void add_stop(struct plait_prompts *p, json_int_t id)
{
    if (id >= 0 && id <= INT32_MAX && p->nstops < PLAIT_STOPS_MOST)
        p->stop[p->nstops++] = (int32_t)id;
}

/* The eos_token_id of generation_config.json: a number or several. */
static void add_ids(struct plait_prompts *p, const json_t *ids)
{
    const json_t *id;
    size_t i;

    if (json_is_integer(ids))
        add_stop(p, json_integer_value(ids));
    json_array_foreach(ids, i, id)
    {
        if (json_is_integer(id))
            add_stop(p, json_integer_value(id));
    }
}

/* The eos_token of tokenizer_config.json, where that is one token. */
static int add_named(struct plait_prompts *p, const char *path,
                     struct plait_error *err)
{
    char *text = plait_tokenizer_eos(path);
    int32_t *tokens;
    size_t n;
    int rc;

    if (!text)
        return 0;
    rc = plait_tokenizer_encode(p->tokenizer, text, strlen(text), &tokens, &n,
                                err);
    free(text);
    if (rc < 0)
        return -1;
    if (n == 1)
        add_stop(p, tokens[0]);
    free(tokens);
    return 0;
}

static int find_stops(struct plait_prompts *p, struct plait_error *err)
{
    const char *path = plait_tokenizer_path(p->tokenizer);
    json_t *generation;

    add_stop(p, p->end);
    /* Data of earlier versions ended with it in any case. */
    add_stop(p, plait_tokenizer_usual_end(p->tokenizer));
    if (!path)
        return 0;
    generation = load_generation_config(path);
    add_ids(p, json_object_get(generation, "eos_token_id"));
    json_decref(generation);
    return add_named(p, path, err);
}

/* -- the prompts --------------------------------------------------------- */

/* The counts of all prompts, then their tokens, as they are broadcast. */
struct encoded {
    int32_t *data;
    size_t size;
};

static int append(struct encoded *e, const int32_t *tokens, size_t n,
                  struct plait_error *err)
{
    int32_t *data = realloc(e->data, (e->size + n) * sizeof(*data));

    if (!data)
        return plait_errorf(err, "out of memory");
    e->data = data;
    if (n)
        memcpy(data + e->size, tokens, n * sizeof(*data));
    e->size += n;
    return 0;
}

static int encode_prompt(const struct plait_prompts *p, const char *prompt,
                         int number, int longest, struct encoded *e,
                         struct plait_error *err)
{
    int32_t end = p->tokenizer ? p->end : 0;
    int32_t *tokens = NULL;
    size_t n = 0;
    int rc;

    errno = EINVAL;
    if (prompt && !p->tokenizer)
        return plait_errorf(err,
                            "a prompt needs --tokenizer spm:FILE or bpe:FILE: "
                            "neither the model nor its data has one, and "
                            "model.vocab %d is not that of bytes (%d)",
                            p->vocab, PLAIT_BYTE_VOCAB);
    if (prompt && plait_tokenizer_encode(p->tokenizer, prompt, strlen(prompt),
                                         &tokens, &n, err) < 0)
        return -1;
    if (n == 0 && end < 0)
        return plait_errorf(err, "an empty prompt begins with the token that "
                                 "ends a text, and the tokenizer has none");
    if (n > (size_t)longest) {
        free(tokens);
        return plait_errorf(err,
                            "prompt %d has %zu tokens, and the model takes at "
                            "most %d (model.seq_len)",
                            number + 1, n, longest);
    }
    rc = n > 0 ? append(e, tokens, n, err) : append(e, &end, 1, err);
    if (rc == 0)
        e->data[number] = n > 0 ? n : 1;
    free(tokens);
    return rc;
}

static int encode_all(struct plait_prompts *p,
                      const struct plait_tokenizer_source *source,
                      const struct plait_prompt_texts *texts, struct encoded *e,
                      struct plait_error *err)
{
    p->tokenizer = plait_tokenizer_find(source, err);
    if (!p->tokenizer && err->text[0])
        return -1;
    if (p->tokenizer) {
        p->vocab = plait_tokenizer_vocab(p->tokenizer);
        p->end = plait_tokenizer_end(p->tokenizer);
        if (find_stops(p, err) < 0)
            return -1;
    }
    e->data = calloc(texts->n, sizeof(*e->data));
    e->size = texts->n;
    if (!e->data)
        return plait_errorf(err, "out of memory");
    for (int i = 0; i < texts->n; i++)
        if (encode_prompt(p, texts->text[i], i, texts->longest, e, err) < 0)
            return -1;
    return 0;
}

static int take_tokens(struct plait_prompts *p, char *data, size_t size)
{
    const int32_t *count = (const int32_t *)(const void *)data;
    size_t counts = p->n * sizeof(*count);

    p->first = calloc(p->n + 1, sizeof(*p->first));
    p->tokens = malloc(size - counts + 1);
    if (!p->first || !p->tokens)
        return -1;
    memcpy(p->tokens, data + counts, size - counts);
    for (int i = 0; i < p->n; i++)
        p->first[i + 1] = p->first[i] + count[i];
    return 0;
}

int plait_prompts_open(struct plait_prompts *p, struct plait_comm *world,
                       const struct plait_tokenizer_source *source,
                       const struct plait_prompt_texts *texts,
                       struct plait_error *err)
{
    struct encoded e = {NULL, 0};
    size_t size = 0;
    char *data = NULL;
    int rc = 0;

    memset(p, 0, sizeof(*p));
    p->n = texts->n;
    p->vocab = source->vocab;
    p->end = -1;
    if (plait_comm_rank(world) == 0) {
        rc = encode_all(p, source, texts, &e, err);
        data = (char *)e.data;
        size = e.size * sizeof(*e.data);
    }
    if (rc < 0) {
        free(data);
        data = NULL;
    }
    if (plait_broadcast_text(world, rc, &data, &size, err) < 0)
        goto error;
    rc = take_tokens(p, data, size);
    free(data);
    if (rc < 0)
        plait_errorf(err, "out of memory");
    if (plait_error_consensus(world, rc, err) < 0)
        goto error;
    if (plait_comm_host_broadcast(world, &p->vocab, sizeof(p->vocab), 0) == 0 &&
        plait_comm_host_broadcast(world, &p->end, sizeof(p->end), 0) == 0 &&
        plait_comm_host_broadcast(world, p->stop, sizeof(p->stop), 0) == 0 &&
        plait_comm_host_broadcast(world, &p->nstops, sizeof(p->nstops), 0) == 0)
        return 0;
    plait_errorf(err, "%s", plait_comm_error(world));
error:
    plait_prompts_close(p);
    return -1;
}

void plait_prompts_close(struct plait_prompts *p)
{
    plait_tokenizer_destroy(p->tokenizer);
    free(p->tokens);
    free(p->first);
    memset(p, 0, sizeof(*p));
}
