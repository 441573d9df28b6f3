/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tap.h"
#include "topology/config.h"

static struct plait_config *parse(const char *text, struct plait_error *err)
{
    err->text[0] = '\0';
    return plait_config_parse("f.yaml", text, strlen(text), NULL, 0, err);
}

static void defaults(void)
{
    struct plait_error err;
    struct plait_config *c = plait_config_create(NULL, NULL, 0, &err);

    ok(c != NULL, "no file: the defaults");
    ok(c->model.layers == 12 && c->model.hidden == 768 &&
           c->model.kv_heads == 12 && c->model.ffn == 3072 &&
           c->model.tie_embeddings && c->model.seq_len == 1024,
       "gpt2's model");
    ok(c->parallel.tp == 1 && c->parallel.dp == PLAIT_AUTO &&
           c->parallel.schedule == PLAIT_SCHEDULE_1F1B &&
           c->parallel_given == 0 && c->parallel.bucket_mib == 25,
       "parallel");
    ok(!c->data.train && !strcmp(c->data.format, "auto") &&
           !strcmp(c->optim.name, "adamw") && c->checkpoint.async &&
           c->checkpoint.keep == 2,
       "data, optim, checkpoint");
    plait_config_destroy(c);
    plait_config_destroy(NULL);
}

static void full(void)
{
    static const char text[] =
        "model: {family: llama, layers: 4, hidden: 256, heads: 8,\n"
        "  kv_heads: 2, vocab: 257, seq_len: 128, rope_theta: 5e5}\n"
        "data:\n"
        "  train: 'a b/*.bin'\n"
        "  val: ~\n"
        "parallel: {tp: 2, pp: 2, dp: auto, schedule: zb-h1, zero: 3,\n"
        "  recompute: full, bucket_mib: 0.5, sequence: true,\n"
        "  grad_reduce: bf16, shard_group: node}\n"
        "train: {steps: 20, global_batch: 16, micro_batch: 2,\n"
        "  precision: bf16, seed: 18446744073709551615}\n"
        "optim: {lr: 1e-3, betas: [0.8, 0.9], clip: 0}\n"
        "lr: {schedule: linear, warmup: 5, min: 0.1, base_batch: 256,\n"
        "     scaling: sqrt}\n"
        "checkpoint:\n"
        "log: {metrics: m.jsonl, profile: traces}\n";
    struct plait_error err;
    struct plait_config *c = parse(text, &err);

    ok(c != NULL, "a full file reads %s", err.text);
    ok(c->model.family == PLAIT_LLAMA && c->model.kv_heads == 2 &&
           c->model.ffn == 704 && !c->model.tie_embeddings &&
           c->model.rope_theta == 5e5,
       "llama: ffn 8/3 hidden up to a multiple of 64, untied");
    ok(!strcmp(c->data.train, "a b/*.bin") && !c->data.val, "texts and null");
    ok(c->parallel.schedule == PLAIT_SCHEDULE_ZB_H1 &&
           c->parallel.recompute == PLAIT_RECOMPUTE_FULL &&
           c->parallel.sequence && c->parallel.zero == 3 &&
           c->parallel.grad_reduce == PLAIT_GRAD_BF16 &&
           c->parallel.shard_group == PLAIT_SHARD_NODE &&
           c->parallel.grad_sync == PLAIT_GRAD_BUCKETED &&
           c->parallel.all_reduce == PLAIT_ALL_REDUCE_AUTO,
       "parallel");
    ok(c->parallel_given == 0x57b9, "which keys were given: %#x",
       c->parallel_given);
    ok(c->train.seed == UINT64_MAX && c->train.precision == PLAIT_BF16,
       "the largest seed");
    ok(c->lr.base_batch == 256 && c->lr.scaling == PLAIT_LR_SQRT,
       "what the peak of the learning rate is meant for");
    ok(c->optim.betas[0] == 0.8 && c->optim.betas[1] == 0.9 && !c->optim.clip,
       "a list of numbers");
    ok(!strcmp(c->log.profile, "traces") && !c->log.tensorboard, "log");
    plait_config_destroy(c);
}

static void overrides(void)
{
    static const char *const set[] = {"train.steps=5", "optim.betas=[0.9,0.99]",
                                      "model.family=llama",
                                      "log.metrics=", "parallel.dp=4"};
    static const char text[] = "log: {metrics: x}\ntrain: {steps: 9}\n";
    static const struct {
        const char *set, *says;
    } bad[] = {
        {"train.steps", "--set train.steps: write SECTION.KEY=VALUE"},
        {"=3", "--set =3: write SECTION.KEY=VALUE"},
        {"train.steps=x",
         "--set train.steps=x: steps is a whole number from 1 to "
         "1000000000000, not 'x'"},
        {"train.stepz=3", "did you mean 'steps'?"},
        {"steps=3", "--set steps=3: unknown key 'steps'; the keys are model,"},
        {"model=3", "--set model=3: model is a mapping"},
        {"train.steps=1\n  seed: 3", "write SECTION.KEY=VALUE"},
        {"train.steps=[1", "--set train.steps=[1: "},
        {"train.steps=1: 2", "--set train.steps=1: 2: steps is a whole"},
        {"optim.betas=[1,0.5]", "must be below 1"},
    };
    struct plait_error err;
    struct plait_config *c;
    size_t i;

    c = plait_config_parse("f", text, strlen(text), set, 5, &err);
    ok(c && c->train.steps == 5 && c->optim.betas[1] == 0.99 &&
           !c->log.metrics && c->model.family == PLAIT_LLAMA &&
           !c->model.tie_embeddings && c->parallel_given == 1 << 4,
       "--set overrides the file, in order");
    plait_config_destroy(c);
    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        c = plait_config_create(NULL, &bad[i].set, 1, &err);
        ok(!c && strstr(err.text, bad[i].says) && !strchr(err.text, '\n'), "%s",
           err.text);
        plait_config_destroy(c);
    }
}

static void refused(void)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"model:\n  layerz: 3\n",
         "f.yaml:2: unknown key 'layerz' in model; did you mean 'layers'?"},
        {"modle: {}\n", "f.yaml:1: unknown key 'modle'; did you mean 'model'"},
        {"lr: {zzzzzzzz: 1}",
         "unknown key 'zzzzzzzz' in lr; the keys are schedule, warmup, min, "
         "base_batch and scaling"},
        {"\n\ntrain: {steps: many}",
         "f.yaml:3: steps is a whole number from 1"},
        {"train: {steps: \"5\\n6\"}", "not the quoted text '5?6'"},
        {"train: {steps: '5'}", "not the quoted text '5'"},
        {"train: {steps: 5.5}", "not '5.5'"},
        {"train: {steps: 0}", "not '0'"},
        {"train: {steps: 99999999999999999999}", "not '9999"},
        {"train: {steps: }", "not nothing"},
        {"train: {steps: [1]}", "not a list"},
        {"train: {seed: -1}", "seed is a whole number, not '-1'"},
        {"train: {precision: fp64}",
         "precision is fp32, bf16, fp16, tf32 or fp8, not 'fp64'"},
        {"parallel: {tp: 0}",
         "tp is \"auto\" or a whole number from 1 to 1048576, not '0'"},
        {"parallel: {sequence: 1}", "sequence is true or false, not '1'"},
        {"optim: {betas: [0.9]}", "betas is a list of 2 numbers from 0 to 1"},
        {"optim: {betas: [0.9, 1.5]}", "not '1.5'"},
        {"optim: {lr: nan}", "lr is a number from 0 to 1000000, not 'nan'"},
        {"optim: {lr: 1e999}", "not '1e999'"},
        {"optim: {name: sgdd}", "name is adamw, not 'sgdd'"},
        {"data: {train: {a: b}}", "train is a text, not a mapping"},
        {"data: {train: \"a\\0b\"}", "train is a text"},
        {"train: {steps: 1, steps: 2}", "f.yaml:1: steps is given twice"},
        {"- a\n- b\n", "the document is a mapping of keys to values, not a"},
        {"[[a]: b]", "f.yaml:1: "},
        {"? [a]\n: b\n", "f.yaml:1: a key is a plain word"},
        {"model: [", "f.yaml:2: did not find expected node content"},
        {"a: b: c\n", "f.yaml:1: mapping values are not allowed"},
        {"model: {}\n---\nmodel: {}\n", "f.yaml:3: a second document"},
        {"model: *nowhere\n", "f.yaml:1: "},
        {"model: &m {family: *m}\n", "f.yaml:1: "},
        {"model: {heads: 7}",
         "f.yaml: model.hidden 768 is not a multiple of model.heads 7"},
        {"model: {family: llama, kv_heads: 5}", "model.kv_heads 5"},
        {"model: {kv_heads: 6}", "gpt2 model has as many as heads, 12"},
        {"model: {family: llama, hidden: 36}", "want an even number"},
        {"train: {global_batch: 30}",
         "train.global_batch 30 is not a multiple of train.micro_batch 4"},
        {"parallel: {dp: 3}", "train.micro_batch 4 * parallel.dp"},
        {"parallel: {virtual: 2}", "wants parallel.schedule interleaved"},
        {"parallel: {ep: 2}", "there are no experts"},
        {"model: {experts: 1}", "model.experts_top_k 2 is more than"},
        {"parallel: {grad_sync: naive, zero: 1}", "wants parallel.zero 0"},
        {"parallel: {grad_sync: naive, grad_reduce: bf16}",
         "wants parallel.grad_sync bucketed, not naive"},
        {"parallel: {all_reduce: hierarchical, zero: 2, shard_group: node}",
         "hierarchical wants parallel.shard_group all"},
        {"parallel: {shard_group: node}", "wants parallel.zero 1, 2 or 3"},
        {"train: {loss_scale: 1024, precision: bf16}",
         "train.loss_scale 1024 wants train.precision fp16, not bf16"},
        {"\xff\xfe\xfa", "f.yaml:1: "},
        {"\x01", "f.yaml:1: "},
    };
    struct plait_error err;
    struct plait_config *c;
    size_t i;

    for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        c = parse(bad[i].text, &err);
        ok(!c && strstr(err.text, bad[i].says) && !strchr(err.text, '\n'), "%s",
           err.text);
        plait_config_destroy(c);
    }
    c = plait_config_create("/nonexistent.yaml", NULL, 0, &err);
    ok(!c && !strcmp(err.text, "/nonexistent.yaml: No such file or directory"),
       "%s", err.text);
    c = plait_config_create("/", NULL, 0, &err);
    ok(!c && !strcmp(err.text, "/: Is a directory"), "%s", err.text);
}

int main(void)
{
    defaults();
    full();
    overrides();
    refused();
    return done_testing();
}
