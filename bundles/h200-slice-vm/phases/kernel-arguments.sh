#!/bin/bash
# The kernel's arguments for passthrough, for the slices' pages of 1 GiB and those of the profile, in
# /etc/default/grub and in a drop-in: a cloud image's own drop-in overrides the first, and a tool that
# edits the first does not know of drop-ins.
set -euo pipefail
# shellcheck source=host.sh
source "$GPUAAS_LIB"

read -r -a own <<<"$GPUAAS_SLICE_KERNEL_ARGUMENTS"
arguments=("$GPUAAS_SLICE_IOMMU_ARGUMENT" "$GPUAAS_SLICE_PASSTHROUGH_ARGUMENT")
if [[ " ${own[*]} " != *" hugepages="* ]]; then
    arguments+=("hugepagesz=1G hugepages=$((GPUAAS_SLICE_MEMORY_GIB_PER_GPU * GPUAAS_SLICE_GPU_COUNT))")
fi
# A size and the number behind it belong together.
size=
for argument in "${own[@]}"; do
    if [[ $argument == hugepagesz=* ]]; then
        size=$argument
    elif [[ $argument == hugepages=* && -n $size ]]; then
        arguments+=("$size $argument")
        size=
    else
        arguments+=("$argument")
    fi
done
grub=/etc/default/grub
drop_in=/etc/default/grub.d/60-gpuaas-slice.cfg
variable=GRUB_CMDLINE_LINUX_DEFAULT

# without_pages TEXT: the same without pages of 1 GiB that another shape of slices asked for.
without_pages() {
    local text=" $1 " argument
    for argument in "${arguments[@]}"; do
        if [[ $argument == "hugepagesz=1G "* && $text == *" $argument "* ]]; then printf '%s' "$1" && return 0; fi
    done
    sed -E 's/ *hugepagesz=1G hugepages=[0-9:,]+//g; s/^ +//' <<<"$1"
}

# The line of the file with what is missing added; the rest as it is.
completed() {
    local line value argument found=0 file
    file=$(at "$grub")
    while IFS= read -r line || [[ -n $line ]]; do
        if [[ $line =~ ^$variable=[\"\']?([^\"\']*)[\"\']?[[:space:]]*$ ]]; then
            value=$(without_pages "${BASH_REMATCH[1]}") found=1
            for argument in "${arguments[@]}"; do
                if [[ " $value " != *" $argument "* ]]; then value="${value:+$value }$argument"; fi
            done
            line="$variable=\"$value\""
        fi
        printf '%s\n' "$line"
    done < <(if [[ -f $file ]]; then cat -- "$file"; fi)
    if ((!found)); then printf '%s="%s"\n' "$variable" "${arguments[*]}"; fi
}

# in_effect ARGUMENT: whether the kernel that runs has it. Of a list of words, and of an argument that
# stands there twice, the last word that is on or off is in effect.
in_effect() {
    local name=${1%%=*} wanted=${1#*=} words word values value given=1
    if [[ $1 == *" "* || $1 != *=* ]]; then [[ " $running " == *" $1 "* ]]; return; fi
    read -r -a words <<<"$running"
    for word in "${words[@]}"; do
        if [[ $word == -- ]]; then break; fi
        if [[ ${word%%=*} != "$name" || $word != *=* ]]; then continue; fi
        # These take lists, or stand there more than once; of all others the last one is in effect.
        if [[ ! $name =~ ^((intel_|amd_)?iommu|pci|mitigations|console|earlycon|hugepages|hugepagesz|(modprobe|rd\.driver)\.blacklist)$ ]]; then given=1; fi
        IFS=, read -r -a values <<<"${word#*=}"
        for value in "${values[@]}" "${word#*=}"; do
            case $value in
                "$wanted") given=0 ;;
                on | off | pt | nopt) if [[ $wanted =~ ^(on|off|pt|nopt)$ ]]; then given=1; fi ;;
            esac
        done
    done
    return "$given"
}

if live && ! command -v update-grub >/dev/null; then
    fail "update-grub is not installed (package grub2-common): if the host has another boot loader, set the kernel arguments there"
fi
text=$(completed)
place "$grub" 0644 <<<"$text"
place "$drop_in" 0644 <<CFG
# Written by ${GPUAAS_BUNDLE%@*}: update-grub reads this as shell.
for argument in$(printf ' "%s"' "${arguments[@]}"); do
    case " \$$variable " in
        *" \$argument "*) ;;
        *) $variable="\$$variable \$argument" ;;
    esac
done
CFG
place /etc/modules-load.d/gpuaas-slice.conf 0644 <<<vfio-pci
after_change update-grub "$grub" "$drop_in" -- host_do update-grub

cmdline=$(at /proc/cmdline)
running=
if [[ -r $cmdline ]]; then running=$(<"$cmdline") running=${running//\"/}; fi
missing=()
for argument in "${arguments[@]}"; do
    if ! in_effect "$argument"; then missing+=("$argument"); fi
done
if ((${#missing[@]})); then
    reboot_needed "the kernel was started without ${missing[*]}"
else
    reboot_not_needed
fi
