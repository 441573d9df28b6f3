# SPDX-License-Identifier: Apache-2.0

# --enable-werror and the project's warnings, in WARN_CFLAGS
AC_DEFUN([PLAIT_WARNINGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [treat warnings as errors])])
    WARN_CFLAGS="-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes"
    WARN_CFLAGS="$WARN_CFLAGS -Wmissing-prototypes -Wformat=2"
    AS_IF([test "x$enable_werror" = xyes],
          [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
    AC_SUBST([WARN_CFLAGS])
    WARN_CXXFLAGS="-std=gnu++17 -Wall -Wextra -Wshadow -Wformat=2"
    AS_IF([test "x$enable_werror" = xyes],
          [WARN_CXXFLAGS="$WARN_CXXFLAGS -Werror"])
    AC_SUBST([WARN_CXXFLAGS])
])

# --enable-sanitizer=address,undefined
AC_DEFUN([PLAIT_SANITIZER], [
    AC_ARG_ENABLE([sanitizer],
        [AS_HELP_STRING([--enable-sanitizer=LIST],
            [build with -fsanitize=LIST (yes: address,undefined)])])
    AS_CASE(["$enable_sanitizer"],
        [yes], [enable_sanitizer=address,undefined],
        [no], [enable_sanitizer=])
    SANITIZER_CFLAGS=
    AS_IF([test -n "$enable_sanitizer"], [
        SANITIZER_CFLAGS="-fsanitize=$enable_sanitizer"
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-omit-frame-pointer"
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-sanitize-recover=undefined"
    ])
    AC_SUBST([SANITIZER_CFLAGS])
    AM_CONDITIONAL([WITH_SANITIZER], [test -n "$enable_sanitizer"])
])

# --enable-fuzz: everything instrumented for libFuzzer, and the fuzz targets
AC_DEFUN([PLAIT_FUZZ], [
    AC_ARG_ENABLE([fuzz],
        [AS_HELP_STRING([--enable-fuzz], [build libFuzzer targets (clang)])])
    AS_IF([test "x$enable_fuzz" = xyes], [
        saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -fsanitize=fuzzer"
        AC_MSG_CHECKING([for libFuzzer])
        AC_LINK_IFELSE([AC_LANG_SOURCE([[
            int LLVMFuzzerTestOneInput(const char *data, unsigned long size);
            int LLVMFuzzerTestOneInput(const char *data, unsigned long size)
            { return data && size ? 0 : 0; }]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-fuzz needs libFuzzer: use CC=clang])])
        CFLAGS=$saved_CFLAGS
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fsanitize=fuzzer-no-link"
    ])
    AM_CONDITIONAL([WITH_FUZZ], [test "x$enable_fuzz" = xyes])
])

AC_DEFUN([AX_PTHREAD_OR_FAIL], [
    AC_SEARCH_LIBS([pthread_create], [pthread], [],
        [AC_MSG_ERROR([POSIX threads are needed])])
])

# oneDNN and a BLAS with a C interface, for kernels/cpu
AC_DEFUN([PLAIT_CPU_LIBRARIES], [
    AC_ARG_WITH([blas],
        [AS_HELP_STRING([--with-blas=PKG],
            [pkg-config name of the OpenBLAS to use (openblas)])],
        [], [with_blas=openblas])
    PKG_CHECK_MODULES([BLAS], [$with_blas])
    saved_LIBS=$LIBS
    LIBS="$BLAS_LIBS $LIBS"
    AC_CHECK_FUNC([dsyevd_], [],
        [AC_MSG_ERROR([OpenBLAS is needed with LAPACK, as by default])])
    LIBS=$saved_LIBS
    AC_CHECK_HEADER([oneapi/dnnl/dnnl.h], [],
        [AC_MSG_ERROR([oneDNN is needed (libdnnl-dev)])])
    saved_LIBS=$LIBS
    AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS=-ldnnl],
        [AC_MSG_ERROR([oneDNN is needed (libdnnl-dev)])])
    LIBS=$saved_LIBS
    AC_SUBST([DNNL_LIBS])
    # Programs that link the kernels are not linked with OPENMP_CFLAGS. Only
    # clang itself knows where its own library is.
    saved_LIBS=$LIBS
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([@%:@ifndef __clang__
@%:@error
@%:@endif])],
        [LIBS="$OPENMP_CFLAGS $LIBS"
         AC_CHECK_FUNC([__kmpc_fork_call], [],
            [AC_MSG_ERROR([LLVM's OpenMP library is needed (libomp-dev)])])],
        [AC_SEARCH_LIBS([GOMP_parallel], [gomp], [],
            [AC_MSG_ERROR([a compiler with OpenMP is needed])])])
    OPENMP_LIBS=${LIBS%"$saved_LIBS"}
    LIBS=$saved_LIBS
    AC_SUBST([OPENMP_LIBS])
])

# Can kernels/cpu be compiled for AVX2 and AVX-512 too?
AC_DEFUN([PLAIT_X86_VECTORS], [
    saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq"
    CFLAGS="$CFLAGS -mavx512vl -mavx512bf16 -mprefer-vector-width=512"
    AC_CACHE_CHECK([for x86-64 vector extensions], [plait_cv_x86_vectors], [
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
            [[__m512 x = _mm512_setzero_ps(); (void)x;]])],
            [plait_cv_x86_vectors=yes], [plait_cv_x86_vectors=no])])
    CFLAGS="$CFLAGS -mamx-tile -mamx-bf16"
    AC_CACHE_CHECK([for x86-64 tiles (AMX)], [plait_cv_x86_tiles], [
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
            [[_tile_dpbf16ps(0, 1, 2);]])],
            [plait_cv_x86_tiles=yes], [plait_cv_x86_tiles=no])])
    CFLAGS=$saved_CFLAGS
    AS_IF([test $plait_cv_x86_vectors = no], [plait_cv_x86_tiles=no])
    AS_IF([test $plait_cv_x86_vectors = yes],
          [AC_DEFINE([HAVE_X86_VECTORS], [1], [AVX2, AVX-512 are compiled])])
    AS_IF([test $plait_cv_x86_tiles = yes],
          [AC_DEFINE([HAVE_X86_TILES], [1], [AMX is compiled])])
    AM_CONDITIONAL([WITH_X86_VECTORS], [test $plait_cv_x86_vectors = yes])
    AM_CONDITIONAL([WITH_X86_TILES], [test $plait_cv_x86_tiles = yes])
])

# Can kernels/cpu be compiled for SVE too? (kernels/cpu/isa.h)
AC_DEFUN([PLAIT_ARM_VECTORS], [
    saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -march=armv8.2-a+sve -msve-vector-bits=256"
    AC_CACHE_CHECK([for SVE vectors of 256 bits], [plait_cv_arm_vectors], [
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#if __ARM_FEATURE_SVE_BITS != 256
#error
#endif]], [])],
            [plait_cv_arm_vectors=yes], [plait_cv_arm_vectors=no])])
    CFLAGS=$saved_CFLAGS
    AS_IF([test $plait_cv_arm_vectors = yes],
          [AC_DEFINE([HAVE_ARM_VECTORS], [1], [SVE is compiled])])
    AM_CONDITIONAL([WITH_ARM_VECTORS], [test $plait_cv_arm_vectors = yes])
])

# SentencePiece tokenizers, for plait-prep. The library that trains them,
# which its pkg-config file names too, is not needed.
AC_DEFUN([PLAIT_SENTENCEPIECE], [
    AC_ARG_WITH([sentencepiece],
        [AS_HELP_STRING([--without-sentencepiece],
            [no SentencePiece models])],
        [], [with_sentencepiece=check])
    have_spm=no
    AS_IF([test "x$with_sentencepiece" != xno], [
        PKG_CHECK_MODULES([SPM], [sentencepiece >= 0.1.90], [have_spm=yes], [
            AS_IF([test "x$with_sentencepiece" != xcheck],
                [AC_MSG_ERROR([SentencePiece not found (libsentencepiece-dev)])])])
    ])
    AS_IF([test $have_spm = yes], [
        AC_LANG_PUSH([C++])
        AC_MSG_CHECKING([whether $CXX compiles C++17])
        saved_CXXFLAGS=$CXXFLAGS
        CXXFLAGS="$CXXFLAGS -std=gnu++17"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <string_view>]])],
            [], [have_spm=no])
        CXXFLAGS=$saved_CXXFLAGS
        AC_MSG_RESULT([$have_spm])
        AC_LANG_POP([C++])
    ])
    SPM_LIBS="$(echo "$SPM_LIBS" | $SED 's/-lsentencepiece_train//') -lstdc++"
    AS_IF([test $have_spm = no], [SPM_CFLAGS= SPM_LIBS=])
    AM_CONDITIONAL([WITH_SENTENCEPIECE], [test $have_spm = yes])
])

AC_DEFUN([PLAIT_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--without-mpi], [build without MPI])],
        [], [with_mpi=check])
    plait_mpi_summary=no
    have_mpi=no
    AS_IF([test "x$with_mpi" != xno], [
        PKG_CHECK_MODULES([MPI], [ompi-c], [have_mpi=yes], [
            PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes], [
                AS_IF([test "x$with_mpi" != xcheck],
                      [AC_MSG_ERROR([no MPI found (ompi-c or mpich)])])])])
    ])
    AS_IF([test $have_mpi = yes], [
        AC_DEFINE([HAVE_MPI], [1], [MPI is used])
        plait_mpi_summary="yes ($MPI_LIBS)"
    ])
    AM_CONDITIONAL([WITH_MPI], [test $have_mpi = yes])
])

AC_DEFUN([PLAIT_SLURM], [
    AC_ARG_WITH([slurm],
        [AS_HELP_STRING([--with-slurm@<:@=PREFIX@:>@],
            [build the plugin against the Slurm in PREFIX])],
        [], [with_slurm=check])
    plait_slurm_summary=no
    have_slurm=no
    # Not -I: the headers are not ours to warn about.
    SLURM_CFLAGS=
    AS_IF([test "x$with_slurm" != xno], [
        AS_CASE(["$with_slurm"],
            [yes|check], [],
            [SLURM_CFLAGS="-isystem $with_slurm/include"])
        saved_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
        AC_CHECK_HEADERS([slurm/spank.h], [have_slurm=yes], [
            AS_IF([test "x$with_slurm" != xcheck],
                  [AC_MSG_ERROR([slurm/spank.h not found (libslurm-dev)])])],
            [#include <stdint.h>])
        CPPFLAGS=$saved_CPPFLAGS
    ])
    AS_IF([test $have_slurm = yes], [plait_slurm_summary="yes $SLURM_CFLAGS"])
    AC_SUBST([SLURM_CFLAGS])
    slurmplugindir="$libdir/slurm"
    AC_ARG_WITH([slurm-plugindir],
        [AS_HELP_STRING([--with-slurm-plugindir=DIR],
            [where spank_plait.so goes (LIBDIR/slurm)])],
        [slurmplugindir=$withval])
    AC_SUBST([slurmplugindir])
    AC_ARG_WITH([cache-dir],
        [AS_HELP_STRING([--with-cache-dir=DIR],
            [where each node keeps what it looks like (/run/plait)])],
        [cachedir=$withval], [cachedir=/run/plait])
    AC_DEFINE_UNQUOTED([PLAIT_CACHEDIR], ["$cachedir"],
        [where each node keeps what it looks like])
    AM_CONDITIONAL([WITH_SLURM], [test $have_slurm = yes])
])

# Where NVIDIA's parts may be, beside what compilers search: the toolkit, and
# the folders that PyPI's wheels nvidia-* have made for this python3, or below
# NVIDIA_WHEELS. The wheels' libraries have numbers and no plain names.
AC_DEFUN([PLAIT_NVIDIA_PLACES], [
    AC_ARG_VAR([NVIDIA_WHEELS],
        [folder with the folder "nvidia" of PyPI's wheels (where python3 looks)])
    plait_wheels=`for d in "$NVIDIA_WHEELS" \
        \`python3 -c 'import sys; print(*sys.path, sep="\n")' 2>/dev/null\`
    do AS_IF([test -n "$d"], [ls -d "$d"/nvidia/*/ 2>/dev/null]); done |
        sed 's,/$,,' | awk '!seen@<:@@S|@0@:>@++'`

    # plait_library DIR NAME: the file of a library there, if there is one
    plait_library() {
        for f in "@S|@1/lib@S|@2.so" "@S|@1/lib@S|@2.so".@<:@0-9@:>@*; do
            AS_IF([test -f "$f"], [echo "$f"; return])
        done
    }
    # plait_place HEADER LIBRARY DIR...: sets plait_include and plait_lib to the
    # folders of the first of DIR with both, and plait_file to the library's
    # file; compilers' own folders are searched last and leave the first empty
    plait_place() {
        plait_include= plait_lib= plait_file= plait_header=@S|@1
        plait_name=@S|@2
        shift 2
        for d; do
            AS_IF([test -f "$d/include/$plait_header"], [], [continue])
            for l in "$d/lib64" "$d/lib"; do
                plait_file=`plait_library "$l" "$plait_name"`
                AS_IF([test -n "$plait_file"],
                    [plait_include=$d/include plait_lib=$l
                     AS_CASE([$d], [/usr], [plait_include= plait_lib=])
                     return])
            done
        done
        AS_IF([echo "@%:@include <$plait_header>" |
                $CC $CPPFLAGS $CUDA_CFLAGS -E -x c - >/dev/null 2>&1],
            [plait_file=`$CC -print-file-name="lib$plait_name.so"`
             AS_IF([test -f "$plait_file"], [], [plait_file=])])
        test -n "$plait_file"
    }
])

# plait_nvcc_takes FLAG...: whether nvcc compiles with its host compiler. Newer
# ones than it knows it refuses.
AC_DEFUN([PLAIT_NVCC_COMPILER], [
    AC_ARG_VAR([NVCC_CCBIN], [the C++ compiler that nvcc uses])
    AC_MSG_CHECKING([for a C++ compiler that nvcc takes])
    cat >conftest.cu <<_PLAIT_EOF
#include <cuda_runtime.h>
#include <vector>
__global__ void kernel() {}
void run() { std::vector<int> x(1); kernel<<<1, 1>>>(); }
_PLAIT_EOF
    plait_takes=no
    plait_all="default g++-15 g++-14 g++-13 g++-12 g++-11 g++-10
        `ls -d /opt/rh/gcc-toolset-*/root/usr/bin/g++ 2>/dev/null`"
    for plait_ccbin in ${NVCC_CCBIN:-$plait_all}; do
        AS_CASE([$plait_ccbin],
            [default], [plait_ccbin=],
            [AS_IF([type "$plait_ccbin" >/dev/null 2>&1], [], [continue])])
        AS_IF(["$NVCC" ${plait_ccbin:+-ccbin=$plait_ccbin} -std=c++17 -c \
                -o conftest.cuo conftest.cu >conftest.err 2>&1],
            [plait_takes=yes; break])
        AS_IF([test -s conftest.first], [], [cp conftest.err conftest.first])
        cat conftest.err >&AS_MESSAGE_LOG_FD
    done
    AS_IF([test $plait_takes = yes],
        [AC_MSG_RESULT([${plait_ccbin:-its own choice}])
         NVCC_CCBIN=$plait_ccbin],
        [AC_MSG_RESULT([none])
         plait_cuda_lacks="nvcc compiles nothing: `grep -m1 error \
            conftest.first || head -n 1 conftest.first`"])
    rm -f conftest.cu conftest.cuo conftest.err conftest.first
])

# The architectures that this nvcc has of those that there are GPUs of: code
# of 8.0 runs on 8.6 and 8.9, of 10.0 on 10.3, of 12.0 on 12.1, and what is
# neither is compiled from 9.0's when it is loaded.
AC_DEFUN([PLAIT_NVCC_GENCODE], [
    AC_ARG_WITH([nvcc-gencode],
        [AS_HELP_STRING([--with-nvcc-gencode=FLAGS],
            [GPU architectures to compile for (8.0, 9.0, 10.0 and 12.0, as far as nvcc has them)])],
        [NVCC_GENCODE=$withval],
        [plait_has=`"$NVCC" --list-gpu-arch 2>/dev/null`
         NVCC_GENCODE=
         for a in 80 90 100 120; do
            AS_CASE([$a], [80|90], [],
                [AS_CASE([" "`echo $plait_has`" "], [*" compute_$a "*], [],
                    [continue])])
            plait_code=sm_$a
            AS_CASE([$a], [90], [plait_code="@<:@sm_90,compute_90@:>@"])
            NVCC_GENCODE="$NVCC_GENCODE -gencode=arch=compute_$a,code=$plait_code"
         done])
])

# CUDA and cuBLASLt: --with-cuda=DIR, CUDA_HOME, nvcc on PATH, NVIDIA's usual
# prefixes, PyPI's wheels
AC_DEFUN([PLAIT_CUDA_TOOLKIT], [
    plait_cuda_lacks="no nvcc"
    plait_homes="/usr/local/cuda `ls -d /usr/local/cuda-* 2>/dev/null |
        sort -t- -k2 -Vr` `echo $plait_wheels`"
    plait_path=
    for d in $CUDA_HOME; do plait_path=$d/bin:; done
    plait_path=$plait_path$PATH
    for d in $plait_homes; do plait_path=$plait_path:$d/bin; done
    AS_CASE([$with_cuda],
        [yes|check], [AC_PATH_PROG([NVCC], [nvcc], [], [$plait_path])],
        [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
    AS_IF([test -n "$NVCC"], [
        plait_cuda_lacks=
        cuda_home=`dirname "$NVCC"`; cuda_home=`cd "$cuda_home/.." && pwd`
        cuda_release=`"$NVCC" --version 2>/dev/null |
            sed -n 's/.*release \(@<:@0-9.@:>@*\),.*/\1/p'`
        PLAIT_NVCC_COMPILER
        CUDA_CFLAGS= CUDA_LDFLAGS= CUDA_LIBS= NCCL_LIBS= plait_cuda_folder=
        for need in cublasLt.h:cublasLt cuda_runtime_api.h:cudart; do
            AS_IF([plait_place "${need%:*}" "${need@%:@*:}" "$cuda_home" \
                    $plait_wheels],
                [PLAIT_USE([CUDA_LIBS])
                 AS_CASE([$need], [*:cudart], [plait_cudart=$plait_used])],
                [plait_cuda_lacks=${plait_cuda_lacks:-"no ${need%:*} and library ${need@%:@*:}"}])
        done
        AS_IF([test -z "$plait_cuda_lacks"],
            [have_cuda=yes; PLAIT_NVCC_GENCODE])])
])

# PLAIT_USE(LIBS): what plait_place found goes into CUDA_CFLAGS, CUDA_LDFLAGS
# and LIBS; plait_used is what LIBS got
AC_DEFUN([PLAIT_USE], [
    plait_used=
    AS_IF([test -n "$plait_lib"], [plait_used="-L$plait_lib "])
    AS_CASE([$plait_file],
        [*.so], [plait_used="$plait_used-l$plait_name"],
        [plait_used="$plait_used-l:`basename "$plait_file"`"])
    $1="$$1 $plait_used"
    PLAIT_USE_FOLDERS
])

AC_DEFUN([PLAIT_USE_FOLDERS], [
    AS_CASE([" $CUDA_CFLAGS "], [*" $plait_include "*], [],
        [AS_IF([test -n "$plait_include"],
            [CUDA_CFLAGS="$CUDA_CFLAGS -isystem $plait_include"])])
    AS_CASE([" $CUDA_LDFLAGS "], [*" -R$plait_lib "*], [],
        [AS_IF([test -n "$plait_lib"],
            [CUDA_LDFLAGS="$CUDA_LDFLAGS -R$plait_lib"])])
])

# PLAIT_PART(NAME, HEADER, LIBRARY, TEST, TEXT): --with-NAME=DIR; have_NAME, and
# NAME_version as the preprocessor has TEXT where TEST of it holds
AC_DEFUN([PLAIT_PART], [
    have_$1=no $1_version=
    AS_CASE([$have_cuda-$with_$1],
        [no-*|*-no], [],
        [AS_CASE([$with_$1], [yes|check], [plait_homes="$cuda_home $plait_wheels"],
            [plait_homes=$with_$1])
         AC_MSG_CHECKING([for $2 and lib$3])
         AS_IF([plait_place $2 $3 $plait_homes], [
            $1_version=`printf '@%:@include <%s>\n@%:@if %s\nPLAIT_HAS %s\n@%:@else\nPLAIT_OLD %s\n@%:@endif\n' \
                $2 '$4' '$5' '$5' | $CC $CPPFLAGS ${plait_include:+-I$plait_include} \
                $CUDA_CFLAGS -E -P -x c - 2>/dev/null | tr -d ' ' |
                sed -n 's/^PLAIT_HAS\(.*\)/\1/p; s/^PLAIT_OLD\(.*\)/\1(too old)/p'`
            AS_CASE([$$1_version],
                [*old*], [],
                [?*], [have_$1=yes])])
         AC_MSG_RESULT([${$1_version:-no} $plait_lib])])
    AS_CASE([$with_$1-$have_$1], [check-*|no-*|*-yes], [],
        [AC_MSG_ERROR([--with-$1: no $2 and lib$3 that will do there, or no CUDA])])
])

AC_DEFUN([PLAIT_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
            [CUDA toolkit with cuBLAS])],
        [], [with_cuda=check])
    AC_ARG_WITH([nccl],
        [AS_HELP_STRING([--without-nccl, --with-nccl@<:@=DIR@:>@],
            [NCCL, which ranks on several GPUs need])],
        [], [with_nccl=check])
    AC_ARG_WITH([cudnn],
        [AS_HELP_STRING([--without-cudnn, --with-cudnn@<:@=DIR@:>@],
            [attention and convolutions by cuDNN 9 unless PLAIT_ATTENTION, PLAIT_CONVOLUTION=own])],
        [], [with_cudnn=check])
    have_cuda=no
    NVCC=
    plait_cuda_summary=no
    AS_IF([test "x$with_cuda" != xno], [
        PLAIT_NVIDIA_PLACES
        PLAIT_CUDA_TOOLKIT
        plait_cuda_summary="no ($plait_cuda_lacks)"
        AS_IF([test $have_cuda = no && test "x$with_cuda" != xcheck],
              [AC_MSG_ERROR([CUDA with cuBLAS not found: $plait_cuda_lacks])])
    ])
    PLAIT_PART([nccl], [nccl.h], [nccl],
        [NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 1)], [NCCL_MAJOR . NCCL_MINOR])
    AS_IF([test $have_nccl = yes], [
        PLAIT_USE([NCCL_LIBS])
        NCCL_LIBS="$NCCL_LIBS $plait_cudart"
        AC_DEFINE([HAVE_NCCL], [1], [NCCL connects ranks on GPUs])])
    PLAIT_PART([cudnn], [cudnn_graph.h], [cudnn], [CUDNN_MAJOR == 9],
        [CUDNN_MAJOR . CUDNN_MINOR])
    AS_IF([test $have_cudnn = yes], [
        PLAIT_USE_FOLDERS
        AC_DEFINE([HAVE_CUDNN], [1], [cuDNN can be chosen])])
    AS_IF([test $have_cuda = yes], [
        AC_DEFINE([HAVE_CUDA], [1], [CUDA and cuBLASLt are used])
        plait_cuda_summary="yes ($cuda_home, $cuda_release; `echo "$NVCC_GENCODE" |
            grep -o 'sm_@<:@0-9@:>@*' | tr '\n' ' ' | sed 's/ $//'`)"
        AS_IF([test -n "$NVCC_CCBIN"],
            [NVCC_GENCODE="$NVCC_GENCODE -ccbin=$NVCC_CCBIN"])
    ])
    plait_nccl_summary=${nccl_version:-no}
    plait_cudnn_summary=${cudnn_version:-no}
    dnl config.log has them for ./check-gpu
    AC_SUBST([plait_cuda_summary]) AC_SUBST([plait_nccl_summary])
    AC_SUBST([plait_cudnn_summary]) AC_SUBST([plait_mpi_summary])
    AC_SUBST([NVCC]) AC_SUBST([NVCC_GENCODE])
    AC_SUBST([CUDA_CFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([CUDA_LIBS]) AC_SUBST([NCCL_LIBS])
    AM_CONDITIONAL([WITH_CUDA], [test $have_cuda = yes])
    AM_CONDITIONAL([WITH_NCCL], [test $have_nccl = yes])
])
