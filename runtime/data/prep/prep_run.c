/* SPDX-License-Identifier: Apache-2.0 */
/* Turns texts into tokens, and goes on where an interrupted run has ended. */
#include "config.h"

#include "runtime/data/prep/prep_run.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/data/prep/prep_files.h"
#include "runtime/data/prep/prep_progress.h"
#include "runtime/data/prep/text_encode.h"
#include "topology/base/clock.h"
#include "topology/base/hash.h"

/* Seconds between two saves of the state: an interrupted run loses no more
 * work. */
static const double state_each = 2.0;

struct run {
    const struct plait_prep *prep;
    uint64_t key;
    struct plait_text_list list;
    struct plait_tokenizer *tokenizer;
    struct plait_text_source *source;
    struct plait_text_encoder *encoder;
    struct plait_token_writer *writer[PLAIT_TEXT_SETS];
    struct plait_prep_state state;
    bool opened; /* the writers' files are this run's */
    bool saved;  /* they have what `state` says, which is on the disk, too */
    struct plait_prep_progress progress;
};

/* -- before anything is made ----------------------------------------------- */

static int list_texts(struct run *r, struct plait_error *err)
{
    const struct plait_prep *p = r->prep;

    for (int i = 0; i < p->ntexts; i++)
        if (plait_text_list_add(&r->list, p->texts[i],
                                p->field || p->prompt_field, err) < 0)
            return -1;
    return 0;
}

/* A hash of the texts and options that the tokens depend on. */
static uint64_t make_key(const struct run *r)
{
    const char *path = plait_tokenizer_path(r->tokenizer);
    uint64_t key = PLAIT_HASH_START;
    struct stat st = {0};
    int64_t number[5] = {1, r->prep->format, 0, 0,
                         plait_tokenizer_end(r->tokenizer)};

    if (path && stat(path, &st) == 0) {
        number[2] = st.st_size;
        number[3] = (int64_t)st.st_mtim.tv_sec;
    }
    key = plait_hash_bytes(key, number, sizeof(number));
    key = plait_hash_text(key, r->prep->tokenizer);
    key = plait_hash_bytes(key, "", 1);
    key = plait_hash_text(key, r->prep->field ? r->prep->field : "");
    if (r->prep->prompt_field) {
        key = plait_hash_bytes(key, "", 1);
        key = plait_hash_text(key, r->prep->prompt_field);
    }
    if (r->prep->skip_bad)
        key = plait_hash_text(key, "skip-bad");
    for (size_t i = 0; i < r->list.count; i++) {
        const struct plait_text_file *f = &r->list.file[i];
        int64_t of[3] = {f->size, f->mtime, f->lines};

        key = plait_hash_text(key, f->path);
        key = plait_hash_bytes(key, of, sizeof(of));
    }
    return key;
}

/* The output must not be inside of a folder of texts: a second run would read
 * the tokens as texts. */
static int check_apart(const struct run *r, struct plait_error *err)
{
    char *out = realpath(r->prep->dir, NULL), *in;
    int rc =
        out ? 0 : plait_errorf(err, "%s: %s", r->prep->dir, strerror(errno));

    for (int i = 0; rc == 0 && i < r->prep->ntexts; i++) {
        in = realpath(r->prep->texts[i], NULL);
        if (in && !strncmp(out, in, strlen(in)) &&
            (out[strlen(in)] == '/' || !out[strlen(in)])) {
            errno = EINVAL;
            rc = plait_errorf(err,
                              "--out %s is inside of the input folder %s: its "
                              "tokens would be read as texts",
                              r->prep->dir, r->prep->texts[i]);
            rmdir(out); /* in case it was just made */
        }
        free(in);
    }
    free(out);
    return rc;
}

/* Before any text is encoded, so that a folder of many files is refused at
 * once, and after the place of the output: that folder may have tokens. */
static int check_texts(const struct run *r, struct plait_error *err)
{
    int saved;

    if (check_apart(r, err) < 0)
        return -1;
    if (plait_text_list_check(&r->list, err) == 0)
        return 0;
    saved = errno;
    rmdir(r->prep->dir); /* in case it was just made */
    errno = saved;
    return -1;
}

/* -- the parts of a run ---------------------------------------------------- */

static int open_writers(struct run *r, bool resumed, struct plait_error *err)
{
    static const char *const names[PLAIT_TEXT_SETS] = {"train", "val"};
    const struct plait_token_form form = {
        .format = r->prep->format,
        .tokenizer = plait_tokenizer_name(r->tokenizer),
        .vocab = plait_tokenizer_vocab(r->tokenizer),
        .masked = r->prep->prompt_field != NULL};
    char *stem;

    for (int i = 0; i < PLAIT_TEXT_SETS; i++) {
        if (asprintf(&stem, "%s/%s", r->prep->dir, names[i]) < 0)
            return plait_errorf(err, "%s: out of memory", r->prep->dir);
        r->writer[i] = plait_token_writer_create(
            stem, &form, resumed ? &r->state.mark[i] : NULL, err);
        free(stem);
        if (!r->writer[i])
            return -1;
    }
    return 0;
}

static int count_cores(void)
{
    cpu_set_t mine;

    return sched_getaffinity(0, sizeof(mine), &mine) < 0 ? 1 : CPU_COUNT(&mine);
}

static int check_end(const struct run *r, struct plait_error *err)
{
    if (plait_tokenizer_end(r->tokenizer) >= 0)
        return 0;
    errno = EINVAL;
    return plait_errorf(err,
                        "%s: no token ends a text: it has no <|endoftext|>, "
                        "<|end_of_text|>, </s> or <eos>, and no "
                        "tokenizer_config.json beside it names an eos_token; "
                        "name one with --end-token TEXT",
                        plait_tokenizer_path(r->tokenizer));
}

static int open_run(struct run *r, struct plait_error *err)
{
    const struct plait_prep *p = r->prep;
    const struct plait_text_fields fields = {.text = p->field ? p->field
                                                     : p->prompt_field
                                                         ? "completion"
                                                         : "text",
                                             .prompt = p->prompt_field,
                                             .skip_bad = p->skip_bad};
    bool resumed;

    r->tokenizer = plait_tokenizer_create(p->tokenizer, err);
    if (!r->tokenizer ||
        (p->end_token &&
         plait_tokenizer_set_end(r->tokenizer, p->end_token, err) < 0) ||
        check_end(r, err) < 0 || list_texts(r, err) < 0 ||
        plait_prep_make_dir(p->dir, err) < 0 || check_texts(r, err) < 0)
        return -1;
    r->key = make_key(r);
    resumed = plait_prep_state_load(p->dir, r->key, &r->state) == 1;
    r->source = plait_text_source_create(&r->list, r->tokenizer, err);
    if (!r->source)
        return -1;
    if (open_writers(r, resumed, err) < 0) {
        r->opened = errno != EWOULDBLOCK; /* another process writes them */
        r->saved = resumed && errno != ESTALE && errno != ENOENT;
        return -1;
    }
    r->opened = true;
    r->saved = resumed;
    if (resumed && plait_text_source_seek(r->source, &r->state.at, err) < 0)
        return -1;
    if (resumed)
        fprintf(stderr, "plait-prep: goes on at %.1f of %.1f MB\n",
                (double)plait_text_source_offset(r->source) / 1e6,
                (double)r->list.size / 1e6);
    r->encoder =
        plait_text_encoder_create(r->tokenizer, &fields, count_cores(), err);
    return r->encoder ? 0 : -1;
}

static void close_run(struct run *r)
{
    plait_text_encoder_destroy(r->encoder);
    plait_text_source_destroy(r->source);
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        plait_token_writer_destroy(r->writer[i]);
    plait_tokenizer_destroy(r->tokenizer);
    plait_text_list_clear(&r->list);
}

/* Submit the next part: 1; 0: there is no room for it; -2: there is none
 * left. */
static int submit_part(struct run *r, struct plait_error *err)
{
    struct plait_text_job *job = plait_text_encoder_next(r->encoder);
    int rc;

    if (!job)
        return 0;
    rc = plait_text_source_next(r->source, &job->part, err);
    if (rc == 1)
        plait_text_encoder_submit(r->encoder);
    return rc == 0 ? -2 : rc;
}

/* Name the first lines of the run that gave no text. */
static void say_left(struct run *r, const struct plait_text_job *job)
{
    for (int64_t i = 0; i < job->left.count; i++, r->state.left++)
        if (r->state.left < PLAIT_TEXT_LEFT_NAMED)
            fprintf(stderr, "plait-prep: %s: line %lld is left out: %s\n",
                    job->part.path, (long long)job->left.first[i].line,
                    job->left.first[i].why);
}

/* Write the tokens of the oldest part: 1; 0: there is none. */
static int write_part(struct run *r, struct plait_error *err)
{
    struct plait_text_job *job = plait_text_encoder_take(r->encoder);

    if (!job)
        return 0;
    if (job->failed) {
        errno = job->failed;
        return plait_errorf(err, "%s", job->err.text);
    }
    for (int i = 0; i < PLAIT_TEXT_SETS; i++) {
        const struct plait_text_encoded *e = &job->set[i];

        if (plait_token_writer_add(r->writer[i], e->tokens.id, e->tokens.count,
                                   (const int64_t *)(const void *)e->ends.data,
                                   e->ends.size / sizeof(int64_t), err) < 0)
            return -1;
    }
    say_left(r, job);
    r->state.at = job->part.end;
    plait_text_encoder_release(r->encoder);
    return 1;
}

static int save_state(struct run *r, struct plait_error *err)
{
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        if (plait_token_writer_sync(r->writer[i], &r->state.mark[i], err) < 0)
            return -1;
    if (plait_prep_state_save(r->prep->dir, r->key, &r->state, err) < 0)
        return -1;
    r->saved = true;
    return 0;
}

static int run_parts(struct run *r, struct plait_error *err)
{
    double saved = plait_clock_now();
    bool more = true;
    int rc;

    for (;;) {
        rc = more ? submit_part(r, err) : 0;
        if (rc == -1)
            return -1;
        if (rc == -2)
            more = false;
        if (rc == 1)
            continue;
        rc = write_part(r, err);
        if (rc <= 0)
            return rc;
        plait_prep_progress_show(&r->progress,
                                 plait_text_source_offset(r->source));
        if (plait_clock_now() - saved > state_each) {
            if (save_state(r, err) < 0)
                return -1;
            saved = plait_clock_now();
        }
    }
}

static void describe_end(const struct plait_tokenizer *t,
                         struct plait_prep_result *result)
{
    const char *name = plait_tokenizer_end_name(t);

    result->end = plait_tokenizer_end(t);
    snprintf(result->end_name, sizeof(result->end_name), "%s",
             name ? name : "");
}

static int finish_run(struct run *r, struct plait_prep_result *result,
                      struct plait_error *err)
{
    const char *dir = r->prep->dir;

    describe_end(r->tokenizer, result);
    result->left = r->state.left;
    result->vocab = plait_tokenizer_vocab(r->tokenizer);
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        result->mark[i] = plait_token_writer_mark(r->writer[i]);
    errno = EINVAL;
    if (result->mark[PLAIT_TEXT_TRAIN].tokens == 0)
        return plait_errorf(err, "%s: no text to train on", r->prep->texts[0]);
    if (plait_prep_copy_tokenizer(dir, r->tokenizer, err) < 0)
        return -1;
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        if (plait_token_writer_complete(r->writer[i], err) < 0)
            return -1;
    r->saved = false; /* a finished file has its own name */
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        if (plait_token_writer_finish(r->writer[i], err) < 0)
            return -1;
    if (plait_prep_write_manifest(dir, r->prep->format, r->tokenizer,
                                  result->mark, err) < 0)
        return -1;
    return plait_prep_sync(dir, err);
}

/* What a failed run has saved is kept: perhaps the disk was full. */
static void settle_failure(struct run *r, struct plait_error *err)
{
    struct plait_error why = *err;

    if (!r->saved) {
        if (r->opened)
            plait_prep_state_remove(r->prep->dir);
        return;
    }
    for (int i = 0; i < PLAIT_TEXT_SETS; i++)
        plait_token_writer_keep(r->writer[i]);
    plait_errorf(err, "%.400s; finished work is kept for the next run",
                 why.text);
}

int plait_prep_run(const struct plait_prep *prep,
                   struct plait_prep_result *result, struct plait_error *err)
{
    struct run r = {.prep = prep};
    int rc = open_run(&r, err), saved;

    if (rc == 0) {
        plait_prep_progress_start(
            &r.progress, plait_text_source_offset(r.source), r.list.size);
        rc = run_parts(&r, err);
        plait_prep_progress_end(&r.progress);
    }
    if (rc == 0)
        rc = finish_run(&r, result, err);
    saved = errno;
    if (rc < 0)
        settle_failure(&r, err);
    else
        plait_prep_state_remove(prep->dir);
    close_run(&r);
    errno = saved;
    return rc;
}
