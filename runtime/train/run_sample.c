/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "runtime/train/inference.h"
#include "runtime/train/resume.h"
#include "runtime/train/run.h"
#include "runtime/train/sample.h"

static int create_model(struct plait_session *s, struct plait_inference **inf,
                        struct plait_error *err)
{
    int rc = plait_run_supported(s->config, s->world.ops, err);

    if (rc == 0 && plait_is_image_model(&s->config->model))
        rc = plait_errorf(err, "--sample: an image model makes no text");
    *inf = rc == 0 ? plait_inference_create(s->config, s->mesh, err) : NULL;
    return plait_error_consensus(s->world.comm, *inf ? 0 : -1, err);
}

static int load_weights(struct plait_session *s, struct plait_inference *inf,
                        const struct plait_train_args *args,
                        struct plait_error *err)
{
    struct plait_shards *shards = plait_inference_shards(inf);
    struct plait_checkpoint_info done;
    int rc = plait_resume(args->resume, args->anyway, INT64_MAX, shards, NULL,
                          &done, err);

    if (rc == 1 && args->init)
        rc = plait_checkpoint_start(args->init, shards, NULL, err);

    if (rc == 0)
        rc = plait_shards_gather_weights(shards, err);
    else if (rc == 1 && plait_comm_rank(s->world.comm) != 0)
        rc = -1;
    else if (rc == 1)
        rc = plait_errorf(err,
                          "--sample: there is no checkpoint to sample "
                          "from in checkpoint.dir (%s), and no --init DIR",
                          s->config->checkpoint.dir ? s->config->checkpoint.dir
                                                    : "not set");
    return plait_error_consensus(s->world.comm, rc, err);
}

int plait_run_sample(struct plait_session *s,
                     const struct plait_train_args *args,
                     struct plait_error *err)
{
    struct plait_detokenizer text = {0};
    struct plait_inference *inf;
    int rc = create_model(s, &inf, err);

    if (rc == 0)
        rc = load_weights(s, inf, args, err);
    if (rc == 0)
        rc = plait_detokenizer_open(&text, s->world.comm, args->tokenizer,
                                    plait_parts_path(&s->config->data.train),
                                    args->prompt, s->config->model.vocab, err);
    if (rc == 0 &&
        plait_sample(plait_inference_pipeline(inf), s->mesh, s->config, &text,
                     args->sample, stdout, err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_detokenizer_close(&text);
    plait_inference_destroy(inf);
    return rc;
}
