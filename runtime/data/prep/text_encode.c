/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/text_encode.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/prep/json_line.h"
#include "runtime/data/segment.h"
#include "topology/base/thread.h"

/* A ring of jobs, numbered from 0: first .. started - 1 were begun by threads,
 * started .. filled - 1 are waiting. */
struct plait_text_encoder {
    const struct plait_tokenizer *tokenizer;
    struct plait_text_fields fields;
    struct plait_text_job *job; /* [njobs] */
    int njobs;
    pthread_t *thread;
    int nthreads;
    pthread_mutex_t lock; /* protects what follows */
    pthread_cond_t changed;
    int64_t first, started, filled;
    bool *done; /* [njobs] */
    bool stop;
};

/* -- one job -------------------------------------------------------------- */

static int end_document(const struct plait_tokenizer *t,
                        struct plait_text_encoded *out, struct plait_error *err)
{
    int64_t count;

    if (plait_tokens_reserve(&out->tokens, 1) < 0)
        return plait_errorf(err, "out of memory");
    out->tokens.id[out->tokens.count++] = plait_tokenizer_end(t);
    count = (int64_t)out->tokens.count;
    if (plait_buffer_add(&out->ends, &count, sizeof(count)) < 0)
        return plait_errorf(err, "out of memory");
    return 0;
}

static int encode_text(const struct plait_text_encoder *e,
                       struct plait_encoder *encoder,
                       struct plait_text_job *job, struct plait_error *err)
{
    struct plait_text_encoded *out = &job->set[job->part.set];

    if (plait_encoder_add(encoder, job->part.text.data, job->part.text.size,
                          job->part.continued, &out->tokens, err) < 0)
        return -1;
    return job->part.ends ? end_document(e->tokenizer, out, err) : 0;
}

/* Find a field that is a string or null. `option` is what names it on the
 * command line. */
static int find_field(const json_t *line, const char *field, const char *option,
                      const json_t **text, struct plait_error *err)
{
    errno = EINVAL;
    *text = json_object_get(line, field);
    if (!json_is_object(line))
        return plait_errorf(err,
                            "expected an object with the text in its field "
                            "'%s'",
                            field);
    if (!*text)
        return plait_errorf(err,
                            "has no field '%s'; use --%s to name the one with "
                            "the %s",
                            field, option, *option == 'p' ? "prompt" : "text");
    if (!json_is_string(*text) && !json_is_null(*text))
        return plait_errorf(err, "field '%s' is not a string", field);
    return 0;
}

static int add_string(struct plait_encoder *encoder, const json_t *text,
                      bool continued, struct plait_text_encoded *out,
                      struct plait_error *err)
{
    return plait_encoder_add(encoder, json_string_value(text),
                             json_string_length(text), continued, &out->tokens,
                             err);
}

/* Add the prompt, if there is one, as separate tokens: a token must end where
 * it ends, as when a prompt is given to the trained model. 1: there is one. */
static int add_prompt(struct plait_encoder *encoder, const json_t *prompt,
                      struct plait_text_encoded *out, struct plait_error *err)
{
    size_t first = out->tokens.count;

    if (!prompt || json_string_length(prompt) == 0) /* that of null is 0 */
        return 0;
    if (add_string(encoder, prompt, false, out, err) < 0)
        return -1;
    for (; first < out->tokens.count; first++)
        out->tokens.id[first] |= PLAIT_TOKEN_MASKED;
    return 1;
}

static const char no_text[] = "its text is null";

/* A line without text is left out; 1: because it is null. */
static int encode_object(const struct plait_text_encoder *e,
                         struct plait_encoder *encoder, const json_t *line,
                         struct plait_text_encoded *out,
                         struct plait_error *err)
{
    const json_t *text, *prompt = NULL;
    int prompted;

    if (find_field(line, e->fields.text, "field", &text, err) < 0 ||
        (e->fields.prompt &&
         find_field(line, e->fields.prompt, "prompt-field", &prompt, err) < 0))
        return -1;
    if (json_string_length(text) == 0)
        return json_is_null(text);
    prompted = add_prompt(encoder, prompt, out, err);
    if (prompted < 0 || add_string(encoder, text, prompted, out, err) < 0)
        return -1;
    return end_document(e->tokenizer, out, err);
}

static int encode_line(const struct plait_text_encoder *e,
                       struct plait_encoder *encoder, const char *line,
                       size_t size, struct plait_text_encoded *out,
                       struct plait_error *err)
{
    json_t *root = plait_json_line_parse(line, size, err);
    int rc;

    if (!root)
        return -1;
    rc = encode_object(e, encoder, root, out, err);
    json_decref(root);
    return rc;
}

static bool is_blank(const char *line, size_t size)
{
    while (size > 0 && *line && strchr(" \t\r\v\f", *line))
        line++, size--;
    return size == 0;
}

static void leave_out(struct plait_text_left *left, int64_t line,
                      const char *why)
{
    if (left->count < PLAIT_TEXT_LEFT_NAMED) {
        left->first[left->count].line = line;
        snprintf(left->first[left->count].why, sizeof(left->first[0].why),
                 "%.150s", why);
    }
    left->count++;
}

static int encode_lines(const struct plait_text_encoder *e,
                        struct plait_encoder *encoder,
                        struct plait_text_job *job, struct plait_error *err)
{
    const char *line = job->part.text.data, *next;
    const char *end = line + job->part.text.size;
    int64_t number = job->part.begin.lines;
    int64_t document = job->part.begin.documents;
    struct plait_error why;
    enum plait_text_set set;
    size_t before;
    int rc;

    for (; line < end; line = next + 1) {
        next = memchr(line, '\n', (size_t)(end - line));
        if (!next)
            next = end;
        number++;
        if (is_blank(line, (size_t)(next - line)))
            continue;
        set = ++document % PLAIT_TEXT_VAL_EACH == 0 ? PLAIT_TEXT_VAL
                                                    : PLAIT_TEXT_TRAIN;
        before = job->set[set].tokens.count;
        rc = encode_line(e, encoder, line, (size_t)(next - line),
                         &job->set[set], &why);
        if (rc > 0 || (rc < 0 && e->fields.skip_bad && errno == EINVAL)) {
            job->set[set].tokens.count = before;
            leave_out(&job->left, number, rc > 0 ? no_text : why.text);
        } else if (rc < 0)
            return plait_errorf(
                err, "%s: line %lld: %.200s%s", job->part.path,
                (long long)number, why.text,
                errno == EINVAL ? "; --skip-bad leaves such lines out" : "");
    }
    return 0;
}

static void encode_job(const struct plait_text_encoder *e,
                       struct plait_encoder *encoder,
                       struct plait_text_job *job)
{
    int rc;

    job->left.count = 0;
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        job->set[i].tokens.count = job->set[i].ends.size = 0;
    if (!encoder) {
        rc = plait_errorf(&job->err, "out of memory");
        errno = ENOMEM;
    } else if (job->part.lines) {
        rc = encode_lines(e, encoder, job, &job->err);
    } else {
        rc = encode_text(e, encoder, job, &job->err);
    }
    job->failed = rc == 0 ? 0 : errno ? errno : EIO;
}

/* -- the threads ----------------------------------------------------------- */

static void *run_thread(void *arg)
{
    struct plait_text_encoder *e = arg;
    struct plait_encoder *encoder = plait_encoder_create(e->tokenizer);
    int64_t mine;

    pthread_mutex_lock(&e->lock);
    for (;;) {
        while (!e->stop && e->started == e->filled)
            pthread_cond_wait(&e->changed, &e->lock);
        if (e->stop)
            break;
        mine = e->started++;
        pthread_mutex_unlock(&e->lock);
        encode_job(e, encoder, &e->job[mine % e->njobs]);
        pthread_mutex_lock(&e->lock);
        e->done[mine % e->njobs] = true;
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    plait_encoder_destroy(encoder);
    return NULL;
}

static int start_threads(struct plait_text_encoder *e, int threads)
{
    for (; e->nthreads < threads; e->nthreads++)
        if (plait_thread_create(&e->thread[e->nthreads], run_thread, e) < 0)
            return -1;
    return 0;
}

struct plait_text_encoder *
plait_text_encoder_create(const struct plait_tokenizer *tokenizer,
                          const struct plait_text_fields *fields, int threads,
                          struct plait_error *err)
{
    struct plait_text_encoder *e = calloc(1, sizeof(*e));

    if (!e) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    e->tokenizer = tokenizer;
    e->fields = *fields;
    e->njobs = 2 * threads + 2;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->job = calloc((size_t)e->njobs, sizeof(*e->job));
    e->done = calloc((size_t)e->njobs, sizeof(*e->done));
    e->thread = calloc((size_t)threads, sizeof(*e->thread));
    if (e->job && e->done && e->thread && start_threads(e, threads) == 0)
        return e;
    plait_errorf(err, "cannot start %d threads: %s", threads, strerror(errno));
    plait_text_encoder_destroy(e);
    return NULL;
}

void plait_text_encoder_destroy(struct plait_text_encoder *e)
{
    int saved = errno;

    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->nthreads; i++)
        pthread_join(e->thread[i], NULL);
    for (int i = 0; e->job && i < e->njobs; i++) {
        free(e->job[i].part.text.data);
        for (int set = 0; set < PLAIT_TEXT_SETS; set++) {
            free(e->job[i].set[set].tokens.id);
            free(e->job[i].set[set].ends.data);
        }
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e->job);
    free(e->done);
    free(e->thread);
    free(e);
    errno = saved;
}

/* Only the caller's thread changes `first` and `filled`. */
struct plait_text_job *plait_text_encoder_next(struct plait_text_encoder *e)
{
    return e->filled - e->first < e->njobs ? &e->job[e->filled % e->njobs]
                                           : NULL;
}

void plait_text_encoder_submit(struct plait_text_encoder *e)
{
    pthread_mutex_lock(&e->lock);
    e->done[e->filled % e->njobs] = false;
    e->filled++;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

struct plait_text_job *plait_text_encoder_take(struct plait_text_encoder *e)
{
    int slot = (int)(e->first % e->njobs);

    if (e->first == e->filled)
        return NULL;
    pthread_mutex_lock(&e->lock);
    while (!e->done[slot])
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return &e->job[slot];
}

void plait_text_encoder_release(struct plait_text_encoder *e)
{
    e->first++;
}
