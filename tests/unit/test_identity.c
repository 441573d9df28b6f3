/* SPDX-License-Identifier: Apache-2.0 */
/* Which settings a checkpoint must share with the run that goes on from it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/identity.h"
#include "tap.h"

static void give_up(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(1);
}

static struct plait_job_config *parse(const char *text)
{
    struct plait_error err;
    struct plait_job_config *c =
        plait_job_config_parse("f.yaml", text, strlen(text), NULL, 0, &err);

    if (!c)
        give_up(err.text);
    return c;
}

/* What a run of `text` saves, but for a key that its version did not know. */
static struct plait_manifest *saved(const char *text, const char *unknown)
{
    struct plait_manifest *m = calloc(1, sizeof(*m));
    struct plait_job_config *c = parse(text);
    struct plait_settings *s;
    int n = 0;

    if (!m || plait_settings_list(c, &m->settings) < 0)
        give_up("out of memory");
    s = &m->settings;
    for (int i = 0; i < s->n; i++)
        if (!unknown || strcmp(s->at[i].key, unknown) != 0)
            s->at[n++] = s->at[i];
    s->n = n;
    plait_job_config_destroy(c);
    return m;
}

/* Whether a run of `now` goes on from one of `then`, whose version did not know
 * the key `unknown`; `why` is then empty, or else has what the refusal says. */
static int goes_on(const char *then, const char *unknown, const char *now,
                   bool weights, const char *why)
{
    struct plait_manifest *m = saved(then, unknown);
    struct plait_job_config *c = parse(now);
    struct plait_error err = {""};
    int rc = plait_identity_check("ck", m, c, weights, NULL, &err);

    plait_job_config_destroy(c);
    free(m);
    if (*err.text)
        printf("# %s\n", err.text);
    return *why ? rc < 0 && strstr(err.text, why) : rc == 0;
}

/* A run goes on from a checkpoint that lacks any one of its settings, if that
 * is at its default. */
static int without_each(const char *text)
{
    struct plait_manifest *all = saved(text, NULL);
    int bad = 0;

    for (int i = 0; i < all->settings.n; i++)
        bad += !goes_on(text, all->settings.at[i].key, text, false, "");
    free(all);
    return bad;
}

static void unknown_keys(void)
{
    ok(goes_on("{}", "model.dropout", "{}", false, ""),
       "a setting that is not there had its default");
    ok(goes_on("{}", "model.dropout", "model: {dropout: 0.1}", false,
               "model.dropout was 0 there and is 0.1 here"),
       "and is found where the run has another");
    ok(goes_on("{}", "optim.weight_decay", "optim: {weight_decay: 0.7}", false,
               "optim.weight_decay was") &&
           goes_on("{}", "batch.growth", "batch: {growth: [[5, 64]]}", false,
                   "batch.growth was"),
       "a number and a list");
    ok(goes_on("{}", "data.end_token",
               "data: {mask_documents: true, end_token: 3}", false,
               "data.mask_documents was false there and is true here; add"),
       "but not one that counts at times only");
    ok(without_each("{}") == 0, "no default is one that differs");
    ok(without_each(
           "model: {family: llama, layers: 2, hidden: 64, heads: 4, "
           "vocab: 256, ffn: 96, rope_scaling: yarn, rope_factor: 4}") == 5,
       "nor of a llama, but what it sets");
}

int main(void)
{
    static const char drops[] = "model: {dropout: 0.1, attention_dropout: 0.2}";

    ok(goes_on("{}", NULL, "{}", false, ""), "the same settings");
    ok(goes_on("{}", NULL, drops, false,
               "model.dropout was 0 there and is 0.1 here, "
               "model.attention_dropout was 0 there and is 0.2 here"),
       "other rates of dropout");
    ok(goes_on("{}", NULL, drops, true, "") &&
           goes_on(drops, NULL, "{}", true, ""),
       "which weights alone know nothing of");
    ok(goes_on("{}", NULL, "model: {norm_eps: 0.1}", true, "model.norm_eps"),
       "as they do of others");
    unknown_keys();
    return done_testing();
}
