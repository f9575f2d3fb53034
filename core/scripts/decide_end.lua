return reply
