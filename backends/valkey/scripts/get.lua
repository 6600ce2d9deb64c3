return answer('lease', find(ARGV[1], ARGV[2]))
