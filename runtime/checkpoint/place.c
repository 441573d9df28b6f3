/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a checkpoint in its place: the manifest last, then `latest`, so that a
 * crash leaves the checkpoint before it. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/checkpoint_private.h"

static int write_manifest(const struct plait_checkpoint_placement *p,
                          struct plait_error *err)
{
    const struct plait_job_config *config = p->model->config;
    struct plait_manifest m = {.info = p->info,
                               .parameters = p->model->parameters};
    int rc;

    if (p->replicas > 0) {
        m.replicas = p->replicas;
        snprintf(m.sync, sizeof(m.sync), "%s",
                 plait_sync_mode_names[config->sync.mode]);
        memcpy(m.sent, p->sent, sizeof(m.sent));
    }
    if (plait_settings_list(config, &m.settings) < 0)
        return plait_errorf(err, "%s: out of memory", p->temporary);
    plait_optim_describe(&config->optim, m.optimizer, sizeof(m.optimizer));
    m.files = calloc(p->nfiles, sizeof(*m.files));
    if (!m.files)
        return plait_errorf(err, "%s: out of memory", p->temporary);
    for (int i = 0; i < p->nfiles; i++)
        if (p->files[i].bytes > 0)
            m.files[m.nfiles++] = p->files[i];
    rc = plait_manifest_write(p->temporary, &m, err);
    free(m.files);
    return rc;
}

int plait_checkpoint_place(const struct plait_checkpoint_placement *p,
                           struct plait_error *notice, struct plait_error *err)
{
    if (plait_directory_check(p->made, p->temporary, err) < 0 ||
        plait_model_file_write(p->temporary, &p->model->config->model, err) <
            0 ||
        write_manifest(p, err) < 0 ||
        plait_directory_commit(p->dir, p->temporary, p->path, p->made, err) < 0)
        return -1;
    plait_directory_prune(p->dir, p->keep, p->info.step, notice);
    return 0;
}
