/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/train/metrics/goodput.h"
#include "tap.h"
#include "temp_path.h"
#include "test_seed.h"
#include "topology/predict/goodput.h"

/* The cost of failures, and what is learned of it from the files of earlier
 * starts. */

static char dir[TEMP_PATH];

static void write_file(const char *name, const char *text)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0)
        exit(99);
}

static int near(double a, double b, double share)
{
    return fabs(a - b) <= share * fabs(b);
}

/* Simulates a run whose failures are a Poisson process; returns the share of
 * its time spent in steps that count. */
static double simulate(uint64_t *state, const struct plait_failure_costs *c)
{
    double trained = 0, time = 0, since = 0, next;

    for (int i = 0; i < 20000; i++) {
        *state = *state * 6364136223846793005 + 1442695040888963407;
        next =
            -log(1 - (double)(*state >> 11) / 9007199254740992.0) * c->between;
        /* From one failure to the next: start, then one save interval after
         * another. */
        since = next - c->start;
        if (since > 0)
            trained += floor(since / (c->every + c->save)) * c->every;
        time += next + c->wait;
    }
    return trained / time;
}

static void check_formulas(void)
{
    struct plait_failure_costs c = {
        .between = 10000, .every = 500, .save = 5, .start = 100, .wait = 200};
    uint64_t state = test_seed();
    double best, at;

    ok(near(plait_checkpoint_interval(10, 1e6), sqrt(2 * 10 * 1e6), 1e-2),
       "a save every %.0f s, nearly as Young says",
       plait_checkpoint_interval(10, 1e6));
    ok(plait_checkpoint_interval(100, 40) == 40 &&
           plait_checkpoint_interval(0, 100) == 0,
       "a save that takes longer than two failures, and one that is free");
    at = plait_checkpoint_interval(5, 10000);
    c.every = at;
    best = plait_expected_goodput(&c, 0);
    c.every = at / 2;
    ok(plait_expected_goodput(&c, 0) < best, "half of it is worse");
    c.every = at * 2;
    ok(plait_expected_goodput(&c, 0) < best, "and so is twice");
    c.every = at;
    ok(near(best, simulate(&state, &c), 0.02),
       "the estimate, %.4f, is what 20,000 failures leave: %.4f", best,
       simulate(&state, &c));
    /* N r (u + every / 2) = 13 a day x 35 minutes: a run of 2,000 nodes with
     * 6.5 failures per 1,000 node-days that saves every hour. */
    c = (struct plait_failure_costs){
        .between = 86400 / 13.0, .every = 3600, .start = 300};
    ok(near(plait_expected_goodput(&c, 0), 1 - 13 * 35 / 1440.0, 1e-9),
       "without saves and queues, what arXiv 2410.21680 has");
    c.every = 0;
    ok(near(plait_expected_goodput(&c, 3600), 1 - 13 * 35 / 1440.0, 1e-9),
       "without checkpoints all is repeated");
    c.between = 100;
    ok(plait_expected_goodput(&c, 3600) == 0, "and never below nothing");
    ok(plait_failures_between(100, 0, 0) == 100 &&
           plait_failures_between(100, 300, 3) == 100 &&
           near(plait_failures_between(100, 1e6, 9), 1e5, 1e-3),
       "what is believed gives way to what is seen");
}

static void check_past(void)
{
    struct plait_past p;
    char path[512];

    snprintf(path, sizeof(path), "%s/m", dir);
    plait_past_read(NULL, 2, 0, &p);
    ok(isnan(p.began) && p.starts == 0, "nothing is on record");
    plait_past_read(path, 2, 0, &p);
    ok(isnan(p.began) && p.starts == 0, "no file");
    write_file("m", "{\"step\":1,\"loss\":2,\"step_s\":4,\"time\":1010}\n"
                    "{\"step\":2,\"loss\":null,\"step_s\":2,\"save_s\":0.5,"
                    "\"saved_step\":1,\"time\":1012}\n"
                    "{\"step\":4,\"step_s\":3,\"time\":1018}\n"
                    "half a li");
    plait_past_read(path, 2, 1100, &p);
    ok(isnan(p.began), "no start is on record");
    write_file("m.starts",
               "{\"time\":1000,\"opened\":999.5,\"lost_s\":0,\"step\":0}\n"
               "{\"time\":1005,\"opened\":1004,\"lost_s\":7,\"waited_s\":3,"
               "\"failed\":true,\"step\":0}\n");
    plait_past_read(path, 2, 1100, &p);
    ok(p.began == 999.5 && p.starts == 2 && p.trained == 6 && p.saved == 0.5,
       "steps that count, and when the first start began");
    ok(p.lost_now == 6 && p.lost == 13 && p.failures == 2 && p.failed_now,
       "those that are made again, two steps to a line");
    ok(p.waited_now == 82 && p.waited == 85, "what was waited for");
    plait_past_read(path, 4, 1100, &p);
    ok(p.lost_now == 0 && !p.failed_now && p.failures == 1 && p.trained == 12,
       "a start that ended in order");
    plait_past_read(path, 0, 1100, &p);
    ok(isnan(p.began), "a run that begins anew");
    write_file("m", "{\"step\":1001,\"step_s\":2,\"time\":1010}\n"
                    "{\"step\":1002,\"step_s\":2,\"time\":1012}\n");
    write_file("m.starts", "{\"time\":1000,\"opened\":999,\"step\":1000}\n");
    plait_past_read(path, 1001, 1100, &p);
    ok(p.trained == 2 && p.lost == 2 && p.failed_now,
       "files that a resumed run began");
    plait_past_read(path, 900, 1100, &p);
    ok(p.trained == 0 && p.lost == 4, "or one that went back further");
    plait_past_read("/dev/null", 3, 1100, &p);
    ok(isnan(p.began), "no regular file");
    unlink(path);
    snprintf(path, sizeof(path), "%s/m.starts", dir);
    unlink(path);
}

static void check_account(void)
{
    struct plait_goodput_account a = {.past = {.began = 1000,
                                               .trained = 100,
                                               .failures = 1,
                                               .starts = 1,
                                               .waited = 50},
                                      .opened = 1300,
                                      .prior = 100000};

    plait_goodput_step(&a, 1330, 10);
    for (int i = 0; i < 10; i++)
        plait_goodput_step(&a, 1332 + 2 * i, 2);
    plait_goodput_save(&a, 3, 1);
    plait_goodput_save(&a, 1, 0);
    ok(near(plait_goodput_share(&a, 1400), 130.0 / 400, 1e-9),
       "the share of all starts");
    ok(plait_goodput_unreported(&a) == 4, "a checkpoint's cost");
    plait_goodput_reported(&a);
    ok(plait_goodput_unreported(&a) == 0, "... is said once");
    ok(near(plait_goodput_between(&a, 1400), 100400 / 2.0, 1e-9),
       "one failure and what is believed");
    ok(plait_goodput_every(&a, 1400) ==
           (int64_t)round(plait_checkpoint_interval(4, 50200) / 2),
       "every %d steps", (int)plait_goodput_every(&a, 1400));
    ok(plait_goodput_expected(&a, 1400, 300) > 0.98 &&
           plait_goodput_expected(&a, 1400, 300) <
               plait_goodput_expected(&a, 1400,
                                      (double)plait_goodput_every(&a, 1400)) +
                   1e-4,
       "what is expected");
}

int main(void)
{
    if (!mkdtemp(temp_path(dir, "goodput")))
        return 99;
    check_formulas();
    check_past();
    check_account();
    rmdir(dir);
    return done_testing();
}
