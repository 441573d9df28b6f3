/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of a model whose configuration does not say it: that of the
 * weights that the run begins with, else that of the data. */
#include "config.h"

#include "runtime/train/data_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/checkpoint/hf_config.h"
#include "runtime/checkpoint/model_source.h"
#include "runtime/comm/consensus.h"
#include "runtime/data/data.h"
#include "runtime/trace/activity.h"
#include "runtime/train/resume.h"
#include "runtime/train/watchdog/watchdog.h"

/* What rank 0 finds for all ranks; 0: not known. */
struct vocabs {
    int32_t weights, data;
};

/* The tokens that a dataset was written with; -1: it cannot be opened. */
static int read_vocab(const struct plait_listeners *to, const char *path,
                      const char *set, enum plait_data_format format,
                      struct plait_error *err)
{
    struct plait_dataset *ds;
    char *found;
    int vocab;

    plait_activity_file(to, path);
    found = plait_dataset_find(path, set);
    if (found)
        plait_activity_file(to, found);
    ds = plait_dataset_create(found ? found : path, format, err);
    vocab = ds ? plait_dataset_vocab(ds) : -1;

    plait_dataset_destroy(ds);
    free(found);
    return vocab;
}

/* The largest vocabulary of the parts that can be opened. -1 with err: one
 * cannot. */
static int read_parts(const struct plait_listeners *to,
                      const struct plait_parts *parts, const char *set,
                      enum plait_data_format format, int32_t *most,
                      struct plait_error *err)
{
    struct plait_error why = {""};
    char key[32];
    int rc = 0;

    snprintf(key, sizeof(key), "data.%s: ", set);
    for (int i = 0; i < parts->n; i++) {
        int vocab = read_vocab(to, parts->at[i].path, set, format, &why);

        if (vocab < 0 && rc == 0) {
            rc = plait_error_prefix(&why, key);
            *err = why;
        }
        *most = vocab > *most ? vocab : *most;
    }
    return rc;
}

/* The vocabulary of the model in a directory; 0: it cannot be read, which
 * whoever loads the model will say. */
static int vocab_of_model(const char *dir)
{
    struct plait_model_source source;
    struct plait_model_config model;
    struct plait_error why;

    if (plait_model_source_find(dir, &source, &why) < 0 ||
        (source.hf ? plait_hf_config_read(source.path, &model, &why)
                   : plait_model_file_read(source.path, &model, &why)) < 0)
        return 0;
    return model.vocab;
}

/* The same order as plait_run_start_weights(). */
static int vocab_of_weights(const struct plait_session *s,
                            const struct plait_train_args *args)
{
    const char *resume = args->resume ? args->resume : "none";
    struct plait_error why;
    char *newest;
    int vocab = 0;

    if (strcmp(resume, "auto") != 0 && strcmp(resume, "none") != 0)
        return vocab_of_model(resume);
    newest = strcmp(resume, "auto") == 0 ? plait_resume_newest(s->config, &why)
                                         : NULL;
    if (newest)
        vocab = vocab_of_model(newest);
    else if (s->init)
        vocab = vocab_of_model(s->init);
    free(newest);
    return vocab;
}

/* A sample needs no data, and data.val no file unless it is used: whoever opens
 * it says why it cannot be. */
static int find(struct plait_session *s, const struct plait_train_args *args,
                const struct plait_listeners *to, struct vocabs *v,
                struct plait_error *err)
{
    const struct plait_data_config *d = &s->config->data;
    struct plait_error why;
    bool need = !s->config->vocab_given && !args->sample;
    int rc;

    if (!s->config->vocab_given)
        v->weights = vocab_of_weights(s, args);
    need = need && v->weights < 2;
    rc = read_parts(to, &d->train, "train", d->format, &v->data,
                    need ? err : &s->data_unread);
    read_parts(to, &d->val, "val", d->format, &v->data, &why);
    plait_activity_phase(to, PLAIT_PHASE_START);
    return need ? rc : 0;
}

int plait_data_vocab_find(struct plait_session *s,
                          const struct plait_train_args *args,
                          struct plait_error *err)
{
    const struct plait_listeners to = {.record =
                                           plait_comm_record(s->world.comm),
                                       .dog = s->dog,
                                       .stage = plait_watchdog_stage};
    struct plait_job_config *c = s->config;
    struct plait_activity a;
    struct vocabs v = {0, 0};
    int rc = 0;

    if (plait_is_image_model(&c->model))
        return 0;
    a = plait_activity_begin(
        &to, &(struct plait_doing){.stage = "opening the data"});
    if (plait_comm_rank(s->world.comm) == 0)
        rc = find(s, args, &to, &v, err);
    rc = plait_error_consensus(s->world.comm, rc, err);
    plait_activity_end(&a);
    if (rc < 0)
        return -1;
    if (plait_comm_host_broadcast(s->world.comm, &v, sizeof(v), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(s->world.comm));
    s->data_vocab = v.data;
    if (!c->vocab_given && v.weights >= 2)
        c->model.vocab = v.weights;
    else if (!c->vocab_given && v.data >= 2)
        c->model.vocab = v.data;
    return 0;
}
