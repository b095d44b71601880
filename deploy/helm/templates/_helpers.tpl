{{- define "rca.image" -}}
{{ .Values.image.repository }}{{ if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "rca.servers" -}}
{{- if not .Values.nats.enabled -}}
{{ required "nats.enabled is false: name your own servers in settings.RCA_NATS__SERVERS" .Values.settings.RCA_NATS__SERVERS }}
{{- else if .Values.settings.RCA_NATS__SERVERS -}}
{{ fail "settings.RCA_NATS__SERVERS names servers of your own: set nats.enabled to false" }}
{{- else if eq (int .Values.nats.replicas) 1 -}}
nats://nats:4222
{{- else -}}
nats://nats-0.nats:4222,nats://nats-1.nats:4222,nats://nats-2.nats:4222
{{- end -}}
{{- end }}

{{- define "rca.config" -}}
{{- $data := merge (dict "RCA_HTTP__PORT" "8080" "RCA_NATS__REPLICAS" (toString .Values.nats.replicas) "RCA_NATS__SERVERS" (include "rca.servers" .)) .Values.settings -}}
{{- if .Values.catalogConfigMap }}{{ $_ := set $data "RCA_CATALOG__PATH" "/etc/rca/catalog" }}{{ end -}}
{{- if .Values.policyConfigMap }}{{ $_ := set $data "RCA_POLICY__PATH" "/etc/rca/policy" }}{{ end -}}
{{- toYaml $data -}}
{{- end }}

{{- define "rca.pod" -}}
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "rca.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end }}
