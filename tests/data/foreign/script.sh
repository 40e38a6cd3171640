#!/bin/bash
set -e  # it's fine
BS=localhost:9092; TOOL="$KAFKA_HOME/bin/kafka-configs.sh"
bin/kafka-configs.sh --bootstrap-server "$BS" --alter --entity-type users --entity-name 'alice smith' \
    --add-config producer_byte_rate=1024,SCRAM-SHA-256=[iterations=8192,password=se=cret]  # for now
/opt/kafka-configs.sh --bootstrap-server=$BS --alter --user bob --client-defaults --add-config=request_percentage=[5] &&
  kafka-configs --zookeeper z --alter --entity-type clients --entity-type users --entity-name "a\"#b" --entity-default \
  --add-config consumer_byte_rate=5,producer_byte_rate=6
kquota kafka-configs --bootstrap-server "$BS" --alter --ip 10.0.0.1 --add-config connection_creation_rate=7
kafka-configs.sh --alter --entity-name x#y --entity-type clients --delete-config producer_byte_rate
kafka-configs.sh --alter --client "a\"#b" --user-defaults --add-config x=1
