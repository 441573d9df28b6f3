/* SPDX-License-Identifier: Apache-2.0 */
/* The lines that a run ends with: what it has kept, and the next commands. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/checkpoint/directory.h"
#include "runtime/train/resume.h"
#include "runtime/train/run_private.h"
#include "topology/base/text.h"

/* Where the checkpoint of the last step is; NULL: it could not be saved. */
static const char *folder_of_last(const struct run *r)
{
    const struct plait_checkpoint_config *c = &r->config->checkpoint;
    const char *const dirs[] = {c->dir, c->fallback};
    struct stat st;
    bool found;
    char *path;

    for (int i = 0; i < 2 && dirs[i]; i++) {
        path = plait_checkpoint_path(dirs[i], r->done.step);
        found = path && stat(path, &st) == 0;
        free(path);
        if (found)
            return dirs[i];
    }
    return NULL;
}

static void say_checkpoint(const struct run *r, const char *dir)
{
    printf("checkpoint of step %" PRId64 ": %s/step-%08" PRId64, r->done.step,
           dir, r->done.step);
    if (!isnan(r->account.val_loss))
        printf("; validation loss %.4g", r->account.val_loss);
    putchar('\n');
}

static void say_next(const struct run *r, const char *dir)
{
    const char *metrics = plait_session_metrics(r->s, r->args);
    char room[PLAIT_QUOTED_MAX];
    const char *name = dir && !plait_is_image_model(&r->config->model)
                           ? plait_text_quote(dir, room)
                           : NULL;

    if (name)
        printf("text from it: plait generate %s --prompt TEXT; for Hugging "
               "Face: plait convert --from %s --to NEW-FOLDER\n",
               name, name);
    if (metrics)
        printf("its curves: plait report %s --out run.html\n",
               plait_text_quote(metrics, room));
}

/* With --resume none or a directory the same command would not go on. */
static const char *command_again(const struct plait_train_args *args)
{
    return strcmp(args->resume, "auto") == 0 ? "the same command"
                                             : "--resume auto";
}

static void say_stopped(const struct run *r, const char *dir)
{
    printf("stopped after step %" PRId64, r->done.step);
    if (dir)
        printf("; %s goes on from there", command_again(r->args));
    putchar('\n');
}

void plait_run_say_again(const struct plait_session *s,
                         const struct plait_train_args *args)
{
    struct plait_error ignored;
    char *newest;

    if (!s->training || !s->config->checkpoint.dir)
        return;
    newest = plait_resume_newest(s->config, &ignored);
    if (newest)
        fprintf(stderr, "; the newest checkpoint is %s; %s goes on from it",
                newest, command_again(args));
    else
        fprintf(stderr, "; there is no checkpoint to go on from");
    free(newest);
}

void plait_run_say_divergence(const struct run *r,
                              const struct plait_divergence *d)
{
    const char *dir = r->config->checkpoint.dir;
    char room[PLAIT_QUOTED_MAX];
    struct plait_error ignored;
    int64_t step;
    char *before;
    int passed;

    before = dir ? plait_checkpoint_newest(dir, d->best_step + 1, &step,
                                           &passed, &ignored)
                 : NULL;
    printf("%sstep %" PRId64 ": the loss has risen from %.4g (step %" PRId64
           ") to %.4g: the training diverges; ",
           r->output.progress.live ? "\r\033[K" : "", r->done.step, d->best,
           d->best_step, d->level);
    if (before)
        printf("with a tenth of optim.lr it goes on from before: --resume %s "
               "--resume-anyway optim.lr --set optim.lr=%.3g\n",
               plait_text_quote(before, room), r->config->optim.lr / 10);
    else
        printf("begin again with a smaller optim.lr%s\n",
               dir ? " and --resume none" : "");
    fflush(stdout);
    free(before);
}

void plait_run_say_end(const struct run *r, bool stopped)
{
    const char *dir = folder_of_last(r);

    if (plait_comm_rank(r->world) != 0)
        return;
    if (stopped)
        say_stopped(r, dir);
    if (!r->config->checkpoint.dir)
        printf("nothing was saved: checkpoint.dir is not set\n");
    if (!dir)
        return;
    say_checkpoint(r, dir);
    if (!stopped)
        say_next(r, dir);
}
