# kquota's completion for bash. To be sourced, or put where bash-completion looks:
# ~/.local/share/bash-completion/completions/kquota

_kquota_completion() {
    local line
    COMPREPLY=()
    # An answer is a line: what replaces $2, after an equals sign, or how to go on.
    while IFS= read -r line; do
        case $line in
            =*) COMPREPLY+=("${line:1}") ;;
            nospace) compopt -o nospace ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done <<< "$(
        _KQUOTA_BEFORE="${COMP_LINE:0:COMP_POINT}" _KQUOTA_WORD="$2" \
            _KQUOTA_COMPLETE=bash_complete "$1" 2> /dev/null
    )"
}

complete -o nosort -F _kquota_completion kquota
