/* SPDX-License-Identifier: Apache-2.0 */
/* plait-train --sample: text from the model of a run. */
#include "config.h"

#include <stdio.h>

#include "runtime/comm/consensus.h"
#include "runtime/text/generate.h"
#include "runtime/train/inference.h"
#include "runtime/train/resume.h"
#include "runtime/train/run.h"

#define TEMPERATURE 0.8 /* below 1: likely tokens more often */

static int create_model(struct plait_session *s, struct plait_inference **inf,
                        struct plait_error *err)
{
    int rc = plait_run_supported(s->config, s->world.ops, err);

    if (rc == 0 && plait_is_image_model(&s->config->model))
        rc = plait_errorf(err, "--sample: an image model cannot generate text");
    *inf = rc == 0 ? plait_inference_create(s->config, s->mesh, err) : NULL;
    return plait_error_consensus(s->world.comm, *inf ? 0 : -1, err);
}

static int load_weights(struct plait_session *s, struct plait_inference *inf,
                        const struct plait_train_args *args,
                        struct plait_error *err)
{
    struct plait_shards *shards = plait_inference_shards(inf);
    struct plait_checkpoint_info done;
    int rc = plait_resume(
        &(struct plait_resume_from){args->resume, args->anyway, INT64_MAX},
        shards, NULL, &done, err);

    if (rc == 1 && s->init)
        rc = plait_checkpoint_start(s->init, shards, NULL, err);

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

static int open_prompt(struct plait_session *s,
                       const struct plait_train_args *args,
                       struct plait_prompts *prompts, struct plait_error *err)
{
    const struct plait_tokenizer_source source = {
        .spec = args->tokenizer,
        .data = plait_parts_path(&s->config->data.train),
        .dir = s->init,
        .vocab = s->config->model.vocab,
    };
    const struct plait_prompt_texts one = {&args->prompt, 1,
                                           s->config->model.seq_len};

    return plait_prompts_open(prompts, s->world.comm, &source, &one, err);
}

int plait_run_sample(struct plait_session *s,
                     const struct plait_train_args *args,
                     struct plait_error *err)
{
    struct plait_generate_how how = {
        .choice = {.temperature = TEMPERATURE,
                   .top_p = 1,
                   .seed = s->config->train.seed},
        .tokens = args->sample,
    };
    struct plait_prompts prompts = {0};
    struct plait_inference *inf;
    int rc = create_model(s, &inf, err);

    if (rc == 0)
        rc = load_weights(s, inf, args, err);
    if (rc == 0)
        rc = open_prompt(s, args, &prompts, err);
    if (rc == 0 && plait_generate(plait_inference_model(inf), &prompts, &how,
                                  stdout, NULL, err) < 0)
        return PLAIT_RUN_BROKEN;
    plait_prompts_close(&prompts);
    plait_inference_destroy(inf);
    return rc;
}
