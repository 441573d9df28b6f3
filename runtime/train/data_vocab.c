/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of the data, which a model has that does not say its own. */
#include "config.h"

#include "runtime/train/data_vocab.h"

#include <stdlib.h>

#include "runtime/data/data.h"

static int read_vocab(const char *path, enum plait_data_format format)
{
    char *found = plait_dataset_find(path, "train");
    struct plait_error why;
    struct plait_dataset *ds =
        found ? plait_dataset_create(found, format, &why) : NULL;
    int vocab = ds ? plait_dataset_vocab(ds) : 0;

    plait_dataset_destroy(ds);
    free(found);
    return vocab;
}

int plait_data_vocab_find(struct plait_session *s, struct plait_error *err)
{
    struct plait_job_config *c = s->config;
    const struct plait_parts *parts = &c->data.train;
    int32_t vocab = 0;

    if (plait_is_image_model(&c->model) || parts->n == 0)
        return 0;
    for (int i = 0; plait_comm_rank(s->world.comm) == 0 && i < parts->n; i++) {
        int one = read_vocab(parts->at[i].path, c->data.format);

        vocab = one > vocab ? one : vocab;
    }
    if (plait_comm_host_broadcast(s->world.comm, &vocab, sizeof(vocab), 0) < 0)
        return plait_errorf(err, "%s", plait_comm_error(s->world.comm));
    s->data_vocab = vocab;
    if (!c->vocab_given && vocab >= 2)
        c->model.vocab = vocab;
    return 0;
}
