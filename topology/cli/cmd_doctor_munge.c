/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "topology/cli/cmd_doctor.h"
#include "topology/cli/credential.h"
#include "topology/start/scontrol.h"

/* Without munged nothing of Slurm works, and its commands say little of it. So
 * it is asked by itself, by what slurm.conf says where the controller does not
 * answer. */

static int find_socket(struct doctor *doctor, char *socket, size_t size,
                       struct plait_error *err)
{
    char type[64], info[512], text[640];

    if (doctor->config)
        return plait_scontrol_parse_munge(doctor->config, socket, size, err);
    if (!doctor->conf[0])
        return plait_errorf(err,
                            "no slurm.conf says how users are authenticated");
    doctor_local_setting(doctor, "AuthType", type, sizeof(type));
    doctor_local_setting(doctor, "AuthInfo", info, sizeof(info));
    snprintf(text, sizeof(text), "AuthType = %s\nAuthInfo = %s\n",
             type[0] ? type : "auth/munge", info[0] ? info : "(null)");
    return plait_scontrol_parse_munge(text, socket, size, err);
}

void doctor_check_munge(struct doctor *doctor)
{
    char socket[256], credential[CREDENTIAL_SIZE], text[CREDENTIAL_TEXT];
    struct findings *f = doctor->findings;
    struct credentials *credentials;
    struct plait_error err;
    int kind = find_socket(doctor, socket, sizeof(socket), &err);

    if (kind <= 0) {
        if (kind == 0)
            plait_errorf(&err, "Slurm uses %.60s", socket);
        findings_add(f, FINDING_NOTE, "munge",
                     "%s: plait run under srun cannot make a PLAIT_SECRET for "
                     "its tasks; users have to set one",
                     err.text);
        return;
    }
    credentials = credentials_create(socket, &err);
    if (!credentials)
        findings_add(f, FINDING_UNCHECKED, "munge", "%s", err.text);
    else if (credentials_seal(credentials, "plait doctor", credential,
                              sizeof(credential), &err) < 0 ||
             credentials_open(credentials, credential, 0, text, sizeof(text),
                              &err) < 0)
        findings_add(f, FINDING_BAD, "munge",
                     "munged does not answer%s%s: %s; Slurm needs it: "
                     "systemctl start munge",
                     socket[0] ? " at " : "", socket, err.text);
    else
        findings_add(f, FINDING_GOOD, "munge",
                     "munged answers: plait run under srun can hand tasks "
                     "their secret over");
    credentials_destroy(credentials);
}
