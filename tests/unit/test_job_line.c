/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/train/metrics/job_line.h"
#include "tap.h"
#include "temp_path.h"
#include "topology/node/energy.h"

/* The line for a job's comment, and the data it is made of. */

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

static void check_text(void)
{
    struct plait_job_line line = {
        .step = 90,
        .steps = 100,
        .restarts = 2,
        .loss = 3.25,
        .per_s = 12345,
        .mfu = 0.412,
        .per_joule = 7.5,
        .step_s = 0.5,
        .planned_s = 0.4,
        .lost_s = 61,
    };
    char text[PLAIT_JOB_COMMENT_SIZE];

    plait_job_line_format(&line, text, sizeof(text));
    ok(strcmp(text, "plait-train: step 90 of 100, loss 3.25, 1.234e+04 "
                    "tokens/s, MFU 41.2 %, 7.5 tokens/J, 0.5 s a step (plan "
                    "0.4), 2 restarts, 61 s lost") == 0,
       "all of it: %s", text);
    line = (struct plait_job_line){.step = 1,
                                   .steps = 1,
                                   .images = true,
                                   .restarts = 1,
                                   .loss = NAN,
                                   .per_s = 5,
                                   .mfu = NAN,
                                   .per_joule = NAN,
                                   .step_s = NAN,
                                   .planned_s = 1,
                                   .lost_s = NAN};
    plait_job_line_format(&line, text, sizeof(text));
    ok(strcmp(text, "plait-train: step 1 of 1, 5 images/s, 1 restart") == 0,
       "what is not known is left out: %s", text);
    plait_job_line_format(&line, text, 20);
    ok(strlen(text) < 20, "a short buffer is kept");
}

static void check_join(void)
{
    char comment[PLAIT_JOB_COMMENT_SIZE], old[2 * PLAIT_JOB_COMMENT_SIZE];

    ok(plait_job_line_join("", "plait-train: a", comment) == 0 &&
           strcmp(comment, "plait-train: a") == 0,
       "a comment of its own");
    ok(plait_job_line_join("mine \n", "plait-train: a", comment) == 0 &&
           strcmp(comment, "mine | plait-train: a") == 0,
       "the user's stays");
    ok(plait_job_line_join("mine | plait-train: a", "plait-train: b",
                           comment) == 0 &&
           strcmp(comment, "mine | plait-train: b") == 0,
       "a later run's takes the place of an earlier one's");
    ok(plait_job_line_join("plait-train: a\n", "plait-train: b", comment) ==
               0 &&
           strcmp(comment, "plait-train: b") == 0,
       "... where that is all");
    memset(old, 'x', sizeof(old));
    old[PLAIT_JOB_COMMENT_SIZE - 5] = '\0';
    ok(plait_job_line_join(old, "plait-train: a", comment) == -1,
       "no room: the user's stays alone");
    old[PLAIT_JOB_COMMENT_SIZE - 5] = 'x';
    old[sizeof(old) - 1] = '\0';
    ok(plait_job_line_join(old, "plait-train: a", comment) == -1,
       "... where it is longer than Slurm's");
}

/* The command that sets the comment of job 12, where squeue says this. */
static const char *update(const char *squeue)
{
    const struct plait_job_line line = {.step = 1,
                                        .steps = 2,
                                        .loss = NAN,
                                        .per_s = NAN,
                                        .mfu = NAN,
                                        .per_joule = NAN,
                                        .step_s = NAN,
                                        .planned_s = NAN,
                                        .lost_s = NAN};
    static char said[2000];
    char path[512];
    size_t n = 0;
    FILE *file;

    write_file("says", squeue);
    write_file("updates", "");
    plait_job_line_write(&line);
    snprintf(path, sizeof(path), "%s/updates", dir);
    file = fopen(path, "r");
    if (file) {
        n = fread(said, 1, sizeof(said) - 1, file);
        fclose(file);
    }
    said[n] = '\0';
    return said;
}

#define LINE "plait-train: step 1 of 2, 0 restarts>"

static void check_write(void)
{
    char text[600];

    write_file("squeue", "#!/bin/sh\ncat \"${0%/*}/says\"\n");
    write_file("scontrol",
               "#!/bin/sh\nprintf '<%s>' \"$@\" >\"${0%/*}/updates\"\n");
    snprintf(text, sizeof(text), "%s/squeue", dir);
    chmod(text, 0700);
    snprintf(text, sizeof(text), "%s/scontrol", dir);
    chmod(text, 0700);
    snprintf(text, sizeof(text), "%s:%s", dir, getenv("PATH"));
    setenv("PATH", text, 1);
    setenv("SLURM_JOB_ID", "12", 1);
    ok(!strcmp(update("\03612 12 mine\n"),
               "<update><JobId=12><Comment=mine | " LINE),
       "a job");
    ok(!strcmp(update("\03612 12 (null)\n"),
               "<update><JobId=12><Comment=" LINE),
       "a job without a comment");
    ok(!strcmp(update("\03612 12 my\nown\n"),
               "<update><JobId=12><Comment=my\nown | " LINE),
       "a comment of two lines");
    ok(!strcmp(update("\03613 12_1 his\n\03612 12_2 mine\n"),
               "<update><JobId=12_2><Comment=mine | " LINE),
       "a task of an array: its own comment alone");
    ok(!strcmp(update("\03613 12+1 (null)\n\03612 12+0 (null)\n"),
               "<update><JobId=12+0><Comment=" LINE),
       "so of a heterogeneous job");
    ok(!strcmp(update("\03613 13 his\n"), "") && !strcmp(update(""), ""),
       "a job that Slurm does not show: nothing");
}

static void check_energy(void)
{
    struct plait_energy *energy = plait_energy_create("", dir);
    char path[512];

    ok(!energy, "nothing counts");
    snprintf(path, sizeof(path), "%s/intel-rapl:0", dir);
    mkdir(path, 0700);
    write_file("intel-rapl:0/energy_uj", "9000000\n");
    write_file("intel-rapl:0/max_energy_range_uj", "10000000\n");
    energy = plait_energy_create("", dir);
    ok(energy && plait_energy_read(energy) == 0, "a package");
    write_file("intel-rapl:0/energy_uj", "9500000\n");
    ok(energy && plait_energy_read(energy) == 0.5, "... that counts joules");
    write_file("intel-rapl:0/energy_uj", "1500000\n");
    ok(energy && plait_energy_read(energy) == 2.5, "... from 0 again");
    write_file("intel-rapl:0/energy_uj", "?\n");
    ok(energy && isnan(plait_energy_read(energy)), "... no longer");
    plait_energy_destroy(energy);
    plait_energy_destroy(NULL);
    /* Energy is read only of GPUs that exist: here there is no driver or no
     * such address. */
    energy = plait_energy_create("ffff:ff:1f.0", dir);
    ok(!energy, "a GPU that is not there");
    plait_energy_destroy(energy);
}

int main(void)
{
    char command[600];

    if (!mkdtemp(temp_path(dir, "job-line")))
        return 99;
    check_text();
    check_join();
    check_write();
    check_energy();
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) != 0 ? 99 : done_testing();
}
