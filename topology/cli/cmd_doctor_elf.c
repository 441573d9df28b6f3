/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/base/error.h"
#include "topology/cli/cmd_doctor.h"

/* A shared object that was cut short maps well and ends who touches the missing
 * pages by SIGBUS; so its headers are read, and held against its size. */

struct elf {
    int fd;
    uint64_t size;
    ElfW(Ehdr) head;
};

static int read_at(const struct elf *elf, uint64_t at, void *to, size_t n)
{
    return pread(elf->fd, to, n, (off_t)at) == (ssize_t)n ? 0 : -1;
}

static const char *machine_name(unsigned machine)
{
    static const struct {
        unsigned machine;
        const char *name;
    } names[] = {{EM_X86_64, "x86-64"},      {EM_AARCH64, "aarch64"},
                 {EM_386, "i386"},           {EM_ARM, "32-bit Arm"},
                 {EM_PPC64, "64-bit Power"}, {EM_RISCV, "RISC-V"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].machine == machine)
            return names[i].name;
    return "another processor";
}

/* The kind of machine, as this program's own header has it. */
static int check_machine_kind(const struct elf *elf, struct plait_error *err)
{
    struct elf own = {.fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    int rc = own.fd < 0 ? -1 : read_at(&own, 0, &own.head, sizeof(own.head));

    if (own.fd >= 0)
        close(own.fd);
    if (rc < 0)
        return plait_errorf(err, "/proc/self/exe cannot be read");
    if (elf->head.e_ident[EI_CLASS] != own.head.e_ident[EI_CLASS] ||
        elf->head.e_ident[EI_DATA] != own.head.e_ident[EI_DATA] ||
        elf->head.e_machine != own.head.e_machine)
        return plait_errorf(err, "it is for %s, and this machine is %s",
                            /* The fields lie alike in both classes. */
                            elf->head.e_ident[EI_DATA] ==
                                    own.head.e_ident[EI_DATA]
                                ? machine_name(elf->head.e_machine)
                                : "the other byte order",
                            machine_name(own.head.e_machine));
    if (elf->head.e_type != ET_DYN)
        return plait_errorf(err, "it is not a shared object");
    return 0;
}

static int cut_short(const struct elf *elf, uint64_t needed,
                     struct plait_error *err)
{
    return plait_errorf(
        err,
        "it is cut short: it has %llu bytes, and its headers speak of %llu",
        (unsigned long long)elf->size, (unsigned long long)needed);
}

/* How far the file must reach by its tables of segments and sections. */
static int check_length(const struct elf *elf, struct plait_error *err)
{
    const ElfW(Ehdr) *head = &elf->head;
    uint64_t needed =
        head->e_shoff + (uint64_t)head->e_shnum * head->e_shentsize;
    uint64_t segments =
        head->e_phoff + (uint64_t)head->e_phnum * head->e_phentsize;

    needed = segments > needed ? segments : needed;
    for (int i = 0; i < head->e_phnum; i++) {
        ElfW(Phdr) segment;

        if (head->e_phentsize != sizeof(segment))
            return plait_errorf(err, "its headers are damaged");
        if (read_at(elf, head->e_phoff + (uint64_t)i * sizeof(segment),
                    &segment, sizeof(segment)) < 0)
            return cut_short(elf, needed, err);
        if (segment.p_filesz && segment.p_offset + segment.p_filesz > needed)
            needed = segment.p_offset + segment.p_filesz;
    }
    return needed > elf->size ? cut_short(elf, needed, err) : 0;
}

int doctor_elf_check(const char *path, struct plait_error *err)
{
    struct elf elf = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat st;
    int rc = -1;

    if (elf.fd < 0 || fstat(elf.fd, &st) < 0) {
        plait_errorf(err, "%s", strerror(errno));
        goto error;
    }
    elf.size = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode))
        plait_errorf(err, "it is not a regular file");
    else if (elf.size == 0)
        plait_errorf(err, "it is empty");
    else if (read_at(&elf, 0, &elf.head, sizeof(elf.head)) < 0 ||
             memcmp(elf.head.e_ident, ELFMAG, SELFMAG) != 0)
        plait_errorf(err, "it is not a shared object");
    else
        rc = check_machine_kind(&elf, err) < 0 ? -1 : check_length(&elf, err);
error:
    if (elf.fd >= 0)
        close(elf.fd);
    return rc;
}
