# kquota's completion for fish. To be put into ~/.config/fish/completions as kquota.fish, or sourced.

function _kquota_completion
    type -q kquota; or return
    # What is behind the cursor, fish does not tell.
    set -l answer (_KQUOTA_BEFORE=(commandline -cp | string collect) \
        _KQUOTA_COMPLETE=fish_complete kquota 2>/dev/null)
    set -l head (string match -r -- '^-[^=]*=' (commandline -ct))
    switch "$answer[1]"
        case file
            printf '%s\n' "$head"(__fish_complete_path (string replace -- "$head" '' (commandline -ct)))
        case dir
            printf '%s\n' "$head"(__fish_complete_directories (string replace -- "$head" '' (commandline -ct)))
        case '*'
            string join -- \n $answer
    end
end

complete --no-files --keep-order --command kquota --arguments "(_kquota_completion)"
